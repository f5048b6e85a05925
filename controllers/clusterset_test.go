// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Users write ClusterSets by hand and leave out what they have no need of. The controller may not change a word of it,
// and must not have to: it would not get its finalizer in, and nobody would become a member.
func TestClusterSetsAreLeftAsWritten(t *testing.T) {
	for name, spec := range map[string]string{
		"nothing":           `{}`,
		"a host outside":    `{clusters: [{name: c1, externalCIDRs: [192.168.77.7/32]}]}`,
		"a block":           `{clusters: [{name: c1, globalnet: {mode: "On"}}], globalnet: {mode: Auto}}`,
		"only its networks": `{clusters: [{name: c1, networks: {podCIDRs: [10.1.0.0/16]}}]}`,
		"who exports":       `{services: {exporters: [{namespaces: [a], clusterNames: [c1]}]}}`,
		"a cable":           `{cables: [{clusters: [{clusterNames: [c1]}, {}], driver: vxlan, unencrypted: true}]}`,
		"a topology":        `{topology: {pairs: [{clusters: [c1, c2], mode: Mesh}]}}`,
		"an affinity":       `{clusterAffinity: {labelSelector: {matchLabels: {a: b}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			set := &unstructured.Unstructured{Object: map[string]any{}}
			var fields map[string]any
			f.must(yaml.Unmarshal([]byte(spec), &fields))
			set.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ClusterSet"))
			set.SetName("blue")
			set.Object["spec"] = fields
			f.must(f.client.Create(t.Context(), set))
			written := set.Object["spec"]
			f.eventually("the ClusterSet is held", func() bool {
				f.must(f.client.Get(t.Context(), client.ObjectKeyFromObject(set), set))
				return slices.Contains(set.GetFinalizers(), "sealane.io/members")
			})
			if diff := cmp.Diff(written, set.Object["spec"]); diff != "" {
				t.Errorf("the spec is not what was written (-written +found):\n%s", diff)
			}
			f.must(f.client.Delete(t.Context(), set))
			f.eventually("the ClusterSet is let go", func() bool {
				return apierrors.IsNotFound(f.client.Get(t.Context(), client.ObjectKeyFromObject(set), set))
			})
		})
	}
}
