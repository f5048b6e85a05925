// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"github.com/karmada-io/karmada/pkg/util/names"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/installation"
)

type uninstall struct {
	*options
	member string
	force  bool
	host   hostCluster
}

func newUninstall(o *options) *cobra.Command {
	u := &uninstall{options: o}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Sealane from Karmada and its members",
		Long: `Remove Sealane: all members leave and clean their nodes, then the ClusterSets, the members' workloads, the
controller and the CRDs go. The users' ServiceExports stay.

With --context, remove it from one member that could not be reached through Karmada, directly.`,
		Example: `  ` + o.invocation + ` uninstall
  ` + o.invocation + ` uninstall --context c1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if u.member != "" {
				return u.cleanMember(cmd.Context())
			}
			return u.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&u.member, "context", "", "kubeconfig context of a member, to remove Sealane from it directly")
	f.BoolVar(&u.force, "force", false,
		"do not wait for members that cannot be reached; with --context, even if Karmada still lists the member")
	u.host.addFlags(f)
	return cmd
}

func (u *uninstall) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	p := newProgress(u.ErrOut)
	karmada, err := u.karmada()
	if err != nil {
		return err
	}
	if _, err := u.karmadaClusters(ctx, karmada); err != nil {
		return err
	}
	if err := karmada.checkRights(ctx, installRights()); err != nil {
		return err
	}
	for _, step := range []func(context.Context, *api, *progress) error{
		u.removeVerified, u.leaveAll, u.stopController, revokeRights, u.removeBundle, u.removeNamespace, u.removeCRDs,
	} {
		if err := step(ctx, karmada, p); err != nil {
			return err
		}
	}
	p.say("uninstalled")
	return nil
}

// removeVerified removes what a verify has left that was killed, from the members that can be asked from here. The pods
// of the others have ended by themselves.
func (u *uninstall) removeVerified(ctx context.Context, karmada *api, p *progress) error {
	members, err := karmada.members(ctx)
	if err != nil && !gone(err) {
		return err
	}
	var g errgroup.Group
	for i := range members {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, cleanPatience)
			defer cancel()
			if member, err := u.reach(ctx, karmada, &members[i]); err == nil {
				return member.removeTrials(ctx, time.Time{})
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		p.warn("what a verify has left is there still: %v", err)
	}
	return nil
}

// leaveAll deletes the ClusterSets, which makes every member leave, and waits until the controller has
// let go of them.
func (u *uninstall) leaveAll(ctx context.Context, karmada *api, p *progress) error {
	sets, err := karmada.clusterSets(ctx)
	if err != nil {
		return err
	}
	for i := range sets {
		if err := karmada.removeOne(ctx, &sets[i]); err != nil {
			return err
		}
		p.say("ClusterSet %s deleted: its members leave", sets[i].Name)
	}
	if u.force {
		return u.abandon(ctx, karmada, p)
	}
	if err := u.waitLeft(ctx, karmada, nil, p); err != nil {
		return err
	}
	err = until(ctx, karmada.noClusterSets)
	if err != nil {
		return &finding{
			expected: "the controller to let go of the ClusterSets",
			found:    fmt.Sprintf("they still exist, with its finalizer (%v)", err),
			remedy:   "see that sealane-controller runs, or go on without it: " + u.invocation + " uninstall --force",
		}
	}
	return nil
}

// clusterSets are none where the kind is not served.
func (a *api) clusterSets(ctx context.Context) ([]v1alpha1.ClusterSet, error) {
	var sets v1alpha1.ClusterSetList
	if err := a.List(ctx, &sets); err != nil && !gone(err) {
		return nil, fmt.Errorf("list clustersets: %w", err)
	}
	return sets.Items, nil
}

func (a *api) noClusterSets(ctx context.Context) (bool, error) {
	sets, err := a.clusterSets(ctx)
	return len(sets) == 0, err
}

// stopController removes the controller's Deployment from the host. One that runs elsewhere loses its
// identity a little later.
func (u *uninstall) stopController(ctx context.Context, _ *api, p *progress) error {
	if err := u.host.complete(u.options); err != nil {
		p.warn("no context of the host cluster: a controller that runs there, or as a process, is yours to stop " +
			"(--host-context)")
		return nil //nolint:nilerr // said, and no reason to stop
	}
	host, err := u.connect(u.host.kubeconfig, u.host.context)
	if err != nil {
		return err
	}
	objects, err := u.host.objects()
	if err != nil {
		return err
	}
	var namespace *unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() == "Namespace" {
			namespace = object
			continue
		}
		if err := host.removeOne(ctx, object); err != nil {
			return err
		}
	}
	if err := host.removeOwned(ctx, namespace); err != nil {
		return err
	}
	p.say("controller removed from the host (context %q)", host.context)
	return nil
}

// removeOwned deletes an object that carries our label, and waits until it is gone.
func (a *api) removeOwned(ctx context.Context, object *unstructured.Unstructured) error {
	err := a.Get(ctx, client.ObjectKeyFromObject(object), object)
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", describe(object), err)
	}
	if object.GetLabels()[labelManagedBy] != v1alpha1.ManagedBy {
		return nil
	}
	if err := a.removeOne(ctx, object); err != nil {
		return err
	}
	return a.waitGone(ctx, object)
}

// nudgeEvery is how often a CustomResourceDefinition that does not go is touched.
const nudgeEvery = 5 * time.Second

// waitGone waits until an object of ours that was deleted is gone. It deletes again what no finalizer holds: the API
// server, whose first deletion of a CustomResourceDefinition only adds its own finalizer, was seen to leave one there
// after that was removed. And it touches one that the API server's finalizer holds for long: the API server forgets
// one where two writes meet, and looks again when it changes. The error says what holds the object.
func (a *api) waitGone(ctx context.Context, object client.Object) error {
	touched := time.Now()
	err := until(ctx, func(ctx context.Context) (bool, error) {
		err := a.Get(ctx, client.ObjectKeyFromObject(object), object)
		switch {
		case gone(err):
			return true, nil
		case err != nil || object.GetLabels()[labelManagedBy] != v1alpha1.ManagedBy:
			return false, err
		case len(object.GetFinalizers()) == 0:
			return false, a.removeOne(ctx, object)
		case slices.Contains(object.GetFinalizers(), apiextensionsv1.CustomResourceCleanupFinalizer) &&
			time.Since(touched) > nudgeEvery:
			touched = time.Now()
			return false, a.touch(ctx, object)
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s is gone: %w%s", describe(object), err, held(object))
	}
	return nil
}

// touch changes an annotation of an object, and nothing else.
func (a *api) touch(ctx context.Context, object client.Object) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"sealane.io/touched":%q}}}`, time.Now().UTC().Format(time.RFC3339))
	err := a.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)))
	if gone(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// held says what keeps an object that was deleted.
func held(object client.Object) string {
	if len(object.GetFinalizers()) == 0 {
		return ""
	}
	text := fmt.Sprintf("; finalizers %s hold it", strings.Join(object.GetFinalizers(), ", "))
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return text
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == string(apiextensionsv1.Terminating) {
			text += fmt.Sprintf("; the API server says %v: %v", c["reason"], c["message"])
		}
	}
	return text
}

// removeBundle deletes the members' workloads, then their CRDs, each as templates on the Karmada API,
// and waits until Karmada removed them from the members. The policies go last: without its policy
// Karmada leaves a resource where it is.
func (u *uninstall) removeBundle(ctx context.Context, karmada *api, p *progress) error {
	workloads, err := manifests("artifacts/deploy/*.yaml")
	if err != nil {
		return err
	}
	// The namespace also holds the controller's identity.
	namespaced := workloads[:0:0]
	for _, object := range workloads {
		if object.GetKind() != "Namespace" {
			namespaced = append(namespaced, object)
		}
	}
	if err := karmada.remove(ctx, namespaced...); err != nil {
		return err
	}
	if err := u.waitWorks(ctx, karmada, namespaced); err != nil {
		return err
	}
	members, err := memberCRDs()
	if err != nil {
		return err
	}
	if err := u.reclaimCRDs(ctx, karmada, members, p); err != nil {
		return err
	}
	if err := karmada.remove(ctx, members...); err != nil {
		return err
	}
	if err := u.waitWorks(ctx, karmada, members); err != nil {
		return err
	}
	p.say("workloads and CRDs removed from the members")
	return nil
}

// memberCRDs are the CRDs that members have too.
func memberCRDs() ([]*unstructured.Unstructured, error) {
	all, err := crds()
	if err != nil {
		return nil, err
	}
	var inMembers []*unstructured.Unstructured
	for _, crd := range all {
		plural, _, _ := strings.Cut(crd.GetName(), ".")
		if slices.Contains(installation.MemberCRDs(), plural) {
			inMembers = append(inMembers, crd)
		}
	}
	return inMembers, nil
}

// waitWorks waits until no Work carries one of the objects to a member.
func (u *uninstall) waitWorks(ctx context.Context, karmada *api, objects []*unstructured.Unstructured) error {
	var left map[string]bool
	err := until(ctx, func(ctx context.Context) (done bool, err error) {
		left, err = karmada.carried(ctx, objects)
		return len(left) == 0, err
	})
	if err != nil {
		return &finding{
			expected: "Karmada to have removed everything of Sealane from the members",
			found:    fmt.Sprintf("something is left in: %s (%v)", strings.Join(sortedKeys(left), ", "), err),
			remedy: "see that Karmada reaches these clusters, and run uninstall again; clean a lost one with uninstall " +
				"--context",
		}
	}
	return nil
}

// carried returns the clusters to which a Work carries one of the objects.
func (a *api) carried(ctx context.Context, objects []*unstructured.Unstructured) (map[string]bool, error) {
	ours := map[string]bool{}
	for _, object := range objects {
		ours[describe(object)] = true
	}
	var works workv1alpha1.WorkList
	if err := a.List(ctx, &works); err != nil {
		return nil, fmt.Errorf("list works: %w", err)
	}
	clusters := map[string]bool{}
	for i := range works.Items {
		w := &works.Items[i]
		for _, raw := range w.Spec.Workload.Manifests {
			var object metav1.PartialObjectMetadata
			if json.Unmarshal(raw.Raw, &object) == nil && ours[describe(&object)] {
				cluster, _ := names.GetClusterName(w.Namespace)
				clusters[cluster] = true
			}
		}
	}
	return clusters, nil
}

func sortedKeys(set map[string]bool) []string {
	keys := make([]string, 0, len(set))
	for key := range set {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// revokeRights takes the controller's rights: one that still runs somewhere installs nothing again.
func revokeRights(ctx context.Context, karmada *api, p *progress) error {
	objects, err := manifests("artifacts/controller/karmada.yaml")
	if err != nil {
		return err
	}
	for _, object := range objects {
		switch object.GetKind() {
		case "ClusterRoleBinding", "RoleBinding", "ClusterRole", "Role",
			"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy":
			if err := karmada.removeOne(ctx, object); err != nil {
				return err
			}
		}
	}
	p.say("controller rights revoked on the Karmada API")
	return nil
}

// removeNamespace deletes the namespace, the controller's identity in it, and the policies.
func (u *uninstall) removeNamespace(ctx context.Context, karmada *api, p *progress) error {
	namespace := &unstructured.Unstructured{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	namespace.SetName(v1alpha1.Namespace)
	if err := karmada.removeOwned(ctx, namespace); err != nil {
		return err
	}
	if err := u.waitWorks(ctx, karmada, []*unstructured.Unstructured{namespace}); err != nil {
		return err
	}
	if err := karmada.removePolicies(ctx); err != nil {
		return err
	}
	p.say("namespace %s and the policies removed from the Karmada API", v1alpha1.Namespace)
	return nil
}

func (a *api) removePolicies(ctx context.Context) error {
	var policies policyv1alpha1.ClusterPropagationPolicyList
	if err := a.List(ctx, &policies, client.MatchingLabels{labelManagedBy: v1alpha1.ManagedBy}); err != nil {
		return fmt.Errorf("list clusterpropagationpolicies: %w", err)
	}
	for i := range policies.Items {
		if err := a.removeOne(ctx, &policies.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// removeCRDs deletes what is left of the CRDs on the Karmada API.
func (u *uninstall) removeCRDs(ctx context.Context, karmada *api, p *progress) error {
	objects, err := crds()
	if err != nil {
		return err
	}
	if err := karmada.remove(ctx, objects...); err != nil {
		return err
	}
	for _, object := range objects {
		if err := karmada.waitGone(ctx, object); err != nil {
			return err
		}
	}
	p.say("CRDs of %s removed from the Karmada API", v1alpha1.GroupVersion)
	return nil
}
