// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1alpha1 "github.com/karmada-io/karmada/pkg/apis/apps/v1alpha1"
	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/installation"
	"github.com/sealane-io/sealane/propagation"
)

// spread names the clusters that the install bundle goes to.
func (f *fleet) spread() string {
	var policies policyv1alpha1.ClusterPropagationPolicyList
	f.must(f.client.List(f.t.Context(), &policies, client.MatchingLabels{propagation.LabelManagedBy: v1alpha1.ManagedBy}))
	var names []string
	for i := range policies.Items {
		got := policies.Items[i].Spec.Placement.ClusterAffinity.ClusterNames
		if i > 0 && !slices.Equal(got, names) {
			return fmt.Sprintf("%q, but %s to %q", names, policies.Items[i].Name, got)
		}
		names = got
	}
	return strings.Join(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == installation.NoCluster }),
		",")
}

// TestEditsOfTheBundlesPoliciesArePutBack: each of them would take the bundle from members, give it to others, or have
// the Karmada API refuse every later write of the controller.
func TestEditsOfTheBundlesPoliciesArePutBack(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	f.eventually("the bundle goes to both", func() bool { return f.spread() == "c1,c2" })
	get := func(p *policyv1alpha1.ClusterPropagationPolicy) {
		f.must(f.client.Get(t.Context(), client.ObjectKey{Name: installation.PolicyName}, p))
	}
	var want policyv1alpha1.ClusterPropagationPolicy
	get(&want)
	affinity := want.Spec.Placement.ClusterAffinity
	for name, edit := range map[string]func(*policyv1alpha1.PropagationSpec){
		"other clusters": func(
			s *policyv1alpha1.PropagationSpec) {
			s.Placement.ClusterAffinity.ClusterNames = []string{"c9"}
		},
		"every cluster": func(s *policyv1alpha1.PropagationSpec) { s.Placement.ClusterAffinity = nil },
		"groups of clusters": func(s *policyv1alpha1.PropagationSpec) {
			s.Placement.ClusterAffinities = []policyv1alpha1.ClusterAffinityTerm{
				{AffinityName: "a", ClusterAffinity: *affinity.DeepCopy()},
			}
			s.Placement.ClusterAffinity = nil
		},
		"some clusters": func(s *policyv1alpha1.PropagationSpec) {
			s.Placement.SpreadConstraints = []policyv1alpha1.SpreadConstraint{
				{SpreadByField: policyv1alpha1.SpreadByFieldCluster, MaxGroups: 1, MinGroups: 1},
			}
		},
		"fewer templates":    func(s *policyv1alpha1.PropagationSpec) { s.ResourceSelectors = s.ResourceSelectors[:1] },
		"what they refer to": func(s *policyv1alpha1.PropagationSpec) { s.PropagateDeps = true },
		"a suspension": func(s *policyv1alpha1.PropagationSpec) {
			s.Suspension = &policyv1alpha1.Suspension{Dispatching: ptr.To(true)}
		},
		"only when they change": func(
			s *policyv1alpha1.PropagationSpec) {
			s.ActivationPreference = policyv1alpha1.LazyActivation
		},
		"what survives its end": func(s *policyv1alpha1.PropagationSpec) { s.PreserveResourcesOnDeletion = ptr.To(true) },
		"what is there unchanged": func(
			s *policyv1alpha1.PropagationSpec) {
			s.ConflictResolution = policyv1alpha1.ConflictAbort
		},
	} {
		f.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
			var p policyv1alpha1.ClusterPropagationPolicy
			get(&p)
			edit(&p.Spec)
			return f.client.Update(t.Context(), &p)
		}))
		f.eventually(name+": put back", func() bool {
			var p policyv1alpha1.ClusterPropagationPolicy
			get(&p)
			return equality.Semantic.DeepEqual(p.Spec, want.Spec)
		})
	}
}

// TestExportsThatWaitedForAClusterAreScheduledAgain, as Karmada's scheduler does not hear that a cluster has come to
// serve ServiceExport: at once and once more, and not faster for a cluster that changes its mind.
func TestExportsThatWaitedForAClusterAreScheduledAgain(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	f.must(f.client.Create(t.Context(), &mcsv1alpha1.ServiceExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "waiting"}}))
	rescheduled := func() (times int) {
		var list appsv1alpha1.WorkloadRebalancerList
		f.must(f.client.List(t.Context(), &list))
		for i := range list.Items {
			if slices.ContainsFunc(list.Items[i].Spec.Workloads, func(w appsv1alpha1.ObjectReference) bool {
				return w.Kind == "ServiceExport" && w.Namespace == "default" && w.Name == "waiting"
			}) {
				times++
			}
		}
		return times
	}
	f.never("exports are scheduled again without need", func() bool { return rescheduled() > 0 })
	serves := func(yes bool) {
		f.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
			var c clusterv1alpha1.Cluster
			if err := f.client.Get(t.Context(), client.ObjectKey{Name: "c2"}, &c); err != nil {
				return err
			}
			c.Status.APIEnablements = nil
			if yes {
				c.Status.APIEnablements = []clusterv1alpha1.APIEnablement{{
					GroupVersion: mcsv1alpha1.GroupVersion.String(),
					Resources:    []clusterv1alpha1.APIResource{{Name: "serviceexports", Kind: "ServiceExport"}},
				}}
			}
			return f.client.Status().Update(t.Context(), &c)
		}))
	}
	serves(true)
	f.eventually("the export is scheduled again", func() bool { return rescheduled() == 1 })
	for range 3 {
		serves(false)
		serves(true)
	}
	f.never("it is again so soon", func() bool { return rescheduled() > 1 })
	f.eventually("it is once more", func() bool { return rescheduled() == 2 })
	f.eventually("that is recorded", func() bool { return f.member("c2").Spec.ServesExports })
}
