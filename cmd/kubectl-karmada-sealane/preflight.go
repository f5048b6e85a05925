// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// karmadaClusters checks that the API server is a Karmada's that answers, and lists its clusters.
func (o *options) karmadaClusters(ctx context.Context, karmada *api) ([]clusterv1alpha1.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var clusters clusterv1alpha1.ClusterList
	err := karmada.List(ctx, &clusters)
	switch {
	case err == nil:
		return clusters.Items, nil
	case meta.IsNoMatchError(err):
		return nil, &finding{
			expected: "a Karmada API that serves clusters (cluster.karmada.io)",
			found:    fmt.Sprintf("%s (context %q) does not serve them", karmada.config.Host, karmada.context),
			remedy: "name the context of the Karmada API with --karmada-context; contexts: " +
				strings.Join(o.contextNames(""), ", "),
		}
	default:
		return nil, karmada.unanswered("the Karmada API", "--karmada-context", err)
	}
}

// installRights are what install and uninstall do on the Karmada API.
func installRights() []authorizationv1.ResourceAttributes {
	return []authorizationv1.ResourceAttributes{
		{Verb: "patch", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
		{Verb: "escalate", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
		{Verb: "patch", Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
		{Verb: "patch", Resource: "namespaces"},
		{Verb: "patch", Group: "policy.karmada.io", Resource: "clusterpropagationpolicies"},
		{Verb: "patch", Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"},
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: v1alpha1.Namespace},
		{Verb: "create", Group: v1alpha1.GroupName, Resource: "clustersets"},
	}
}

// checkRights asks the API server whether the user may do all of them.
func (a *api) checkRights(ctx context.Context, rights []authorizationv1.ResourceAttributes) error {
	var missing []string
	for _, right := range rights {
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right},
		}
		if err := a.Create(ctx, review); err != nil {
			return fmt.Errorf("ask what the user may do: %w", err)
		}
		if !review.Status.Allowed {
			missing = append(missing, rightText(right))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &finding{
		expected: fmt.Sprintf("the rights of an administrator on the Karmada API (context %q)", a.context),
		found:    "not allowed: " + strings.Join(missing, ", "),
		remedy:   "use the kubeconfig that Karmada's installation wrote for its administrator",
	}
}

// rightText writes a right as "patch clusterroles.rbac.authorization.k8s.io" or "create serviceaccounts/token".
func rightText(right authorizationv1.ResourceAttributes) string {
	text := right.Verb + " " + right.Resource
	if right.Subresource != "" {
		text += "/" + right.Subresource
	}
	if right.Group != "" {
		text += "." + right.Group
	}
	return text
}

// checkServiceExport sees that Karmada's own CRD of the MCS API is there: exports made on the Karmada
// API need it, those made in members do not.
func (a *api) checkServiceExport(p *progress) error {
	_, err := a.RESTMapper().RESTMapping(schema.GroupKind{Group: "multicluster.x-k8s.io", Kind: "ServiceExport"})
	switch {
	case err == nil:
		return nil
	case meta.IsNoMatchError(err):
		p.warn("the Karmada API serves no ServiceExport (multicluster.x-k8s.io): services can be exported in members " +
			"only; Karmada's own CRDs hold it")
		return nil
	default:
		return fmt.Errorf("look for ServiceExport on the Karmada API: %w", err)
	}
}

// chosen checks that every name is a cluster of Karmada.
func chosen(names []string, clusters []clusterv1alpha1.Cluster) error {
	known := map[string]bool{}
	var all []string
	for i := range clusters {
		known[clusters[i].Name] = true
		all = append(all, clusters[i].Name)
	}
	for _, name := range names {
		if !known[name] {
			return &finding{
				expected: fmt.Sprintf("%q to be a cluster of this Karmada", name),
				found:    "clusters: " + strings.Join(all, ", "),
				remedy: didYouMean(name, all) +
					"check the name, or join the cluster to Karmada first (karmadactl join, karmadactl register)",
			}
		}
	}
	return nil
}

// installed tells that Sealane's own kinds are served.
func (o *options) installed(ctx context.Context, karmada *api) error {
	if _, err := o.karmadaClusters(ctx, karmada); err != nil {
		return err
	}
	err, missing := karmada.List(ctx, &v1alpha1.ClusterSetList{}, client.Limit(1)), "clustersets"
	if err == nil {
		// An API server whose CRDs have just been deleted may serve one kind for a moment longer than another. Whether
		// members may be read is a matter of who needs them.
		if e := karmada.List(ctx, &v1alpha1.MemberList{}, client.Limit(1)); meta.IsNoMatchError(e) {
			err, missing = e, "members"
		}
	}
	if meta.IsNoMatchError(err) {
		return &finding{
			expected: fmt.Sprintf("Sealane on the Karmada API (context %q)", karmada.context),
			found:    missing + ".sealane.io is not served",
			remedy:   "run " + o.invocation + " install",
		}
	}
	if err != nil {
		return karmada.unanswered("the Karmada API", "--karmada-context", fmt.Errorf("list clustersets: %w", err))
	}
	return nil
}
