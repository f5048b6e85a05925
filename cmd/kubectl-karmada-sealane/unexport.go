// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func newUnexport(o *options) *cobra.Command {
	e := &export{options: o}
	cmd := &cobra.Command{
		Use:   "unexport SERVICE",
		Short: "Take back what export made",
		Long: `Delete the ServiceExport and the PropagationPolicy that export made; with --context, the ServiceExport that
it made in that member. What others made stays, and is named: the Service, a ServicePolicy, and exports of other
clusters, which the name still leads to. With the last export the name goes from every member.

It returns when Karmada has deleted the ServiceExport in every cluster that it reaches, and these no longer
report it; --wait=false returns at once, while Karmada may go on deleting.`,
		Example: "  " + o.invocation + " unexport whereami -n sample",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e.service = args[0]
			return e.undo(cmd.Context())
		},
	}
	e.addFlags(cmd)
	return cmd
}

// undo deletes the ServiceExport before the policy: without its policy Karmada would leave it in the
// members.
func (e *export) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	if err := checkServiceName(e.service); err != nil {
		return err
	}
	target, err := e.target()
	if err != nil {
		return err
	}
	serviceExport, err := e.serviceExport(target)
	if err != nil {
		return err
	}
	var rest []string
	if e.member == "" {
		rest = e.stays(ctx, target)
	}
	if err := e.takeBack(ctx, target, serviceExport); err != nil {
		return err
	}
	if e.member != "" {
		if e.wait {
			if err := e.awaitUnreported(ctx, target, serviceExport); err != nil {
				return err
			}
		}
		fmt.Fprintf(e.Out,
			"the cluster of context %s no longer exports %s in %s; the Service stays. Who still does: %s show services -n %s\n",
			e.member, e.service, e.namespace, e.invocation, e.namespace)
		return nil
	}
	policy := &policyv1alpha1.PropagationPolicy{}
	policy.SetGroupVersionKind(policyv1alpha1.SchemeGroupVersion.WithKind("PropagationPolicy"))
	policy.Namespace, policy.Name = e.namespace, policyName(e.service)
	if err := e.takeBack(ctx, target, policy); err != nil {
		return err
	}
	if e.wait {
		if err := e.awaitWithdrawn(ctx, target); err != nil {
			return err
		}
	}
	if len(rest) == 0 {
		rest = []string{"no cluster is known to export it on its own: the name goes from every member"}
	}
	fmt.Fprintf(e.Out, "%s in %s is no longer exported by way of Karmada; the Service stays\n", e.service, e.namespace)
	for _, line := range rest {
		fmt.Fprintln(e.Out, line)
	}
	return nil
}

// stays tells what keeps exporting or steering the service, as far as the Karmada API knows.
func (e *export) stays(ctx context.Context, karmada *api) []string {
	f, err := e.gather(ctx, karmada, subjects{bundles: true, exports: true}, scope{namespace: e.namespace})
	if err != nil {
		return []string{"whether other clusters export it is not known: " + err.Error()}
	}
	var lines []string
	for i := range f.members {
		m := &f.members[i]
		if m.export(e.namespace, e.service) != nil && !f.places(m.Name, e.namespace, e.service) {
			lines = append(lines,
				fmt.Sprintf("%s still exports it by a ServiceExport made there: %s unexport %s -n %s --context %s", m.Name,
					e.invocation, e.service, e.namespace, m.Name))
		}
	}
	for i := range f.policies {
		if p := &f.policies[i]; p.Namespace == e.namespace && p.Name == e.service {
			lines = append(lines,
				fmt.Sprintf("its ServicePolicy stays: kubectl delete servicepolicy %s -n %s", e.service, e.namespace))
		}
	}
	return lines
}

// places says whether Karmada puts a ServiceExport in a cluster.
func (f *fleet) places(cluster, namespace, name string) bool {
	for i := range f.templates {
		t := &f.templates[i]
		if t.Namespace != namespace || t.Name != name || t.binding == nil {
			continue
		}
		for _, target := range t.binding.Spec.Clusters {
			if target.Name == cluster {
				return true
			}
		}
	}
	return false
}

// takeBack deletes an object that export made.
func (e *export) takeBack(ctx context.Context, target *api, object client.Object) error {
	what := describe(object)
	err := target.Get(ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		fmt.Fprintf(e.Out, "%s is not there\n", what)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", what, err)
	}
	if err := e.ownOfMember(object,
		fmt.Sprintf("take it back there: %s unexport %s -n %s; or export it from fewer clusters: -C",
			e.invocation, e.service, e.namespace)); err != nil {
		return err
	}
	if object.GetLabels()[labelManagedBy] != exportedBy {
		return &finding{
			expected: what + " to be of export's making",
			found:    "it lacks the label " + labelManagedBy + "=" + exportedBy + ": somebody else made it",
			remedy:   "delete it yourself, or where it comes from",
		}
	}
	if err := target.removeOne(ctx, object); err != nil {
		return err
	}
	fmt.Fprintf(e.Out, "%s deleted\n", what)
	return nil
}
