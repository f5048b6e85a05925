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
it made in that member. What others made stays, and is named.`,
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
	target, err := e.target()
	if err != nil {
		return err
	}
	serviceExport, err := e.serviceExport(target)
	if err != nil {
		return err
	}
	if err := e.takeBack(ctx, target, serviceExport); err != nil {
		return err
	}
	if e.member != "" {
		return nil
	}
	policy := &policyv1alpha1.PropagationPolicy{}
	policy.SetGroupVersionKind(policyv1alpha1.SchemeGroupVersion.WithKind("PropagationPolicy"))
	policy.Namespace, policy.Name = e.namespace, policyName(e.service)
	return e.takeBack(ctx, target, policy)
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
