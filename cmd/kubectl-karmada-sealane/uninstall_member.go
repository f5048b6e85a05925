// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/clusterdns"
	"github.com/sealane-io/sealane/memberagent/cluster/hijack"
)

// cleanPatience is how long the agents have to clean their nodes themselves.
const cleanPatience = time.Minute

// cleanMember removes Sealane from one member, without Karmada.
func (u *uninstall) cleanMember(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	p := newProgress(u.ErrOut)
	member, err := u.connect("", u.member)
	if err != nil {
		return err
	}
	if err := u.notListed(ctx, member, p); err != nil {
		return err
	}
	for _, step := range []func(context.Context, *api, *progress) error{
		removeVerified, cleanNodes, stopAgents, removeImports, removeForwarding, removeHijacked, removeWorkloads,
		removeMemberCRDs,
	} {
		if err := step(ctx, member, p); err != nil {
			return err
		}
	}
	p.say("%s: nothing of Sealane is left but the users' own objects", u.member)
	return nil
}

// removeVerified removes what a verify has left that was killed.
func removeVerified(ctx context.Context, member *api, _ *progress) error {
	return member.removeTrials(ctx, time.Time{})
}

// notListed refuses to clean what Karmada would at once install again.
func (u *uninstall) notListed(ctx context.Context, member *api, p *progress) error {
	var ns corev1.Namespace
	if err := member.Get(ctx, client.ObjectKey{Name: "kube-system"}, &ns); err != nil {
		return &finding{
			expected: fmt.Sprintf("the member at %s (context %q) to answer", member.config.Host, member.context),
			found:    err.Error(),
			remedy:   "name the member's context with --context",
		}
	}
	if u.force {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, defaultMemberTimeout)
	defer cancel()
	karmada, err := u.karmada()
	if err != nil {
		return err
	}
	members, err := karmada.members(ctx)
	if err != nil {
		p.warn("cannot ask the Karmada API (context %q) whether this is still a member: should Karmada reach it, it will "+
			"install Sealane again", karmada.context)
		return nil // a Karmada that cannot be asked is what this command is for
	}
	for i := range members {
		if members[i].Spec.ClusterUID == string(ns.UID) {
			return &finding{
				expected: "a cluster that is no member any more",
				found:    "it is member " + members[i].Name,
				remedy: fmt.Sprintf("run %s leave %s, with --force if it cannot be reached, or insist with uninstall "+
					"--context %s --force", u.invocation, members[i].Name, u.member),
			}
		}
	}
	return nil
}

// cleanNodes asks the agents to clean up, by the message that a leave sends. Where they do not answer,
// the steps that follow do what can be done without them.
func cleanNodes(ctx context.Context, member *api, p *progress) error {
	peering := &v1alpha1.Peering{}
	peering.Name = v1alpha1.PeeringName
	patch := fmt.Appendf(nil, `{"spec":{"phase":%q}}`, v1alpha1.MemberLeaving)
	err := member.Patch(ctx, peering, client.RawPatch("application/merge-patch+json", patch),
		client.FieldOwner(fieldManager))
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("tell the agents to leave: %w", err)
	}
	p.say("told the agents to clean the nodes")
	patient, cancel := context.WithTimeout(ctx, cleanPatience)
	defer cancel()
	err = until(patient, func(ctx context.Context) (bool, error) {
		err := member.Get(ctx, client.ObjectKeyFromObject(peering), peering)
		return peering.Status.Cleaned || gone(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		p.warn("the agents did not report clean nodes within %s; going on", cleanPatience)
		return ctx.Err()
	}
	p.say("the agents report clean nodes")
	return nil
}

// stopAgents ends the node agents first: a node agent that finds its DaemonSet gone cleans its node
// before it exits. The cluster agent follows, so that it writes nothing after us.
func stopAgents(ctx context.Context, member *api, p *progress) error {
	for _, workload := range []struct{ kind, name string }{
		{"DaemonSet", "sealane-node"}, {"Deployment", "sealane-cluster-agent"},
	} {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: workload.kind})
		object.SetNamespace(v1alpha1.Namespace)
		object.SetName(workload.name)
		if err := member.removeOne(ctx, object); err != nil {
			return err
		}
		err := until(ctx, func(ctx context.Context) (bool, error) {
			var pods corev1.PodList
			err := member.List(ctx, &pods, client.InNamespace(v1alpha1.Namespace),
				client.MatchingLabels{"app.kubernetes.io/name": workload.name})
			return len(pods.Items) == 0, err
		})
		if err != nil {
			return fmt.Errorf("wait until the pods of %s are gone: %w", workload.name, err)
		}
		p.say("%s %s stopped", workload.kind, workload.name)
	}
	return nil
}

// removeImports deletes the derived Services, EndpointSlices and ServiceImports that are ours.
func removeImports(ctx context.Context, member *api, p *progress) error {
	ours := client.MatchingLabels{labelManagedBy: v1alpha1.ManagedBy}
	var services corev1.ServiceList
	if err := member.List(ctx, &services, ours, client.HasLabels{v1alpha1.LabelImport}); err != nil {
		return fmt.Errorf("list derived services: %w", err)
	}
	var slices discoveryv1.EndpointSliceList
	managedSlices := client.MatchingLabels{discoveryv1.LabelManagedBy: v1alpha1.ManagedBy}
	if err := member.List(ctx, &slices, managedSlices); err != nil {
		return fmt.Errorf("list endpointslices: %w", err)
	}
	var imports mcsv1alpha1.ServiceImportList
	if err := member.List(ctx, &imports, ours); err != nil && !gone(err) {
		return fmt.Errorf("list serviceimports: %w", err)
	}
	var objects []client.Object
	for i := range services.Items {
		if v1alpha1.OwnsService(&services.Items[i]) {
			objects = append(objects, &services.Items[i])
		}
	}
	derived := len(objects)
	for i := range slices.Items {
		if v1alpha1.OwnsSlice(&slices.Items[i]) {
			objects = append(objects, &slices.Items[i])
		}
	}
	sliced := len(objects) - derived
	for i := range imports.Items {
		if v1alpha1.OwnsServiceImport(&imports.Items[i]) {
			objects = append(objects, &imports.Items[i])
		}
	}
	for _, object := range objects {
		if err := member.removeOne(ctx, object); err != nil {
			return err
		}
	}
	p.say("%d imports, %d derived Services and %d EndpointSlices removed", len(objects)-derived-sliced, derived, sliced)
	return nil
}

// removeForwarding takes what Sealane added out of the configuration of the cluster's DNS.
func removeForwarding(ctx context.Context, member *api, p *progress) error {
	var agent appsv1.Deployment
	if _, err := member.find(ctx, client.ObjectKey{Namespace: v1alpha1.Namespace, Name: clusterAgentName},
		&agent); err != nil {
		return err
	}
	wiring := clusterdns.Wiring{ConfigMap: configMapOf(&agent)}
	found, err := wiring.Find(ctx, member)
	if err != nil {
		return fmt.Errorf("look for what configures the cluster's DNS: %w", err)
	}
	leaving := &v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{Phase: v1alpha1.MemberLeaving}}
	plan := wiring.Plan(found, leaving, netip.Addr{})
	if plan.Condition.Reason != clusterdns.ReasonRemoved {
		// Said, and no reason to leave the rest behind.
		p.warn("%s", plan.Condition.Message)
	}
	for i := range plan.Changes {
		c := &plan.Changes[i]
		if c.Want == nil {
			err = client.IgnoreNotFound(member.Delete(ctx, c.Have))
		} else {
			err = member.Update(ctx, c.Want, client.FieldOwner(fieldManager))
		}
		if err != nil {
			return fmt.Errorf("change %s: %w", c.What, err)
		}
		p.say("what Sealane added is removed from %s", c.What)
	}
	return nil
}

// removeHijacked takes the networks of other clusters out of Spiderpool's settings.
func removeHijacked(ctx context.Context, member *api, p *progress) error {
	have, err := hijack.Coordinator(ctx, member)
	if err != nil || have == nil {
		return err
	}
	want, err := hijack.Want(have, nil)
	if err != nil || want == nil {
		return err
	}
	if err := hijack.Write(ctx, member, have, want, client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("change %s: %w", hijack.Name, err)
	}
	p.say("what Sealane added is removed from %s", hijack.Name)
	return nil
}

// removeWorkloads deletes what is left of the install bundle.
func removeWorkloads(ctx context.Context, member *api, p *progress) error {
	objects, err := manifests("artifacts/deploy/*.yaml")
	if err != nil {
		return err
	}
	namespace := objects[0]
	if err := member.remove(ctx, objects[1:]...); err != nil {
		return err
	}
	if err := member.removeOwned(ctx, namespace); err != nil {
		return err
	}
	p.say("namespace %s and all rights removed", namespace.GetName())
	return nil
}

// removeMemberCRDs deletes our CRDs, and those of the MCS API if we installed them and no ServiceExport
// of a user's is left.
func removeMemberCRDs(ctx context.Context, member *api, p *progress) error {
	objects, err := memberCRDs()
	if err != nil {
		return err
	}
	if err := member.remove(ctx, objects...); err != nil {
		return err
	}
	for _, object := range objects {
		if err := member.waitGone(ctx, object); err != nil {
			return err
		}
	}
	p.say("CRDs of %s removed", v1alpha1.GroupVersion)
	var exports mcsv1alpha1.ServiceExportList
	if err := member.List(ctx, &exports, client.Limit(1)); gone(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("list serviceexports: %w", err)
	}
	if len(exports.Items) > 0 {
		p.say("the CRDs of the MCS API stay: there are ServiceExports")
		return nil
	}
	for _, name := range []string{"serviceimports", "serviceexports"} {
		if err := member.removeMCSCRD(ctx, name+"."+mcsv1alpha1.GroupName); err != nil {
			return err
		}
	}
	return nil
}

func (a *api) removeMCSCRD(ctx context.Context, name string) error {
	var crd apiextensionsv1.CustomResourceDefinition
	err := a.Get(ctx, client.ObjectKey{Name: name}, &crd)
	if gone(err) || err == nil && crd.Labels[labelManagedBy] != v1alpha1.ManagedBy {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get CustomResourceDefinition %s: %w", name, err)
	}
	return a.removeOne(ctx, &crd)
}
