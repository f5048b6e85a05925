// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"fmt"
	"strings"
	"testing"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestTheCableOfAPair is told to both ends, and follows the labels of clusters. That it does not encrypt has to be
// said.
func TestTheCableOfAPair(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	set := &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	patch := func(path, value string) error {
		return f.client.Patch(t.Context(), set, client.RawPatch("application/json-patch+json",
			fmt.Appendf(nil, `[{"op":"add","path":"/spec/%s","value":%s}]`, path, value)))
	}
	const inClear = "driver vxlan does not encrypt: set unencrypted to true"
	for _, c := range []struct{ path, value, refused string }{
		{"cable/driver", `"vxlan"`, inClear},
		{"cable/driver", `"ipx"`, `"wireguard", "vxlan"`},
		{"cables", `[{"clusters":[{}],"driver":"vxlan"}]`, inClear},
		{"cables", `[{"clusters":[{}],"driver":"vxlan","unencrypted":false}]`, inClear},
		{"cables", `[{"clusters":[],"driver":"wireguard"}]`, "should have at least 1 items"},
		{"cables", `[{"clusters":[{},{},{}],"driver":"wireguard"}]`, "must have at most 2 items"},
	} {
		err := patch(c.path, c.value)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s %s: expected a refusal with %q, found %v", c.path, c.value, c.refused, err)
		}
	}
	told := func(want string) func() bool {
		return func() bool {
			var set v1alpha1.ClusterSet
			f.must(f.client.Get(t.Context(), client.ObjectKey{Name: "blue"}, &set))
			one, two := f.peering("c1"), f.peering("c2")
			return len(one.RemoteClusters) == 1 && len(two.RemoteClusters) == 1 && want == fmt.Sprintf("%s %s %s %s %d",
				one.RemoteClusters[0].Cable, two.RemoteClusters[0].Cable, one.Cable.Driver, two.Cable.Driver,
				set.Status.UnencryptedPairs)
		}
	}
	f.must(patch("cables", `[{"clusters":[{"labelSelector":{"matchLabels":{"site":"a"}}}],"driver":"vxlan",`+
		`"unencrypted":true}]`))
	label := func(site string) {
		for _, name := range []string{"c1", "c2"} {
			cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
			f.must(f.client.Patch(t.Context(), cluster, client.RawPatch("application/merge-patch+json",
				fmt.Appendf(nil, `{"metadata":{"labels":{"site":%q}}}`, site))))
		}
	}
	label("a")
	f.eventually("both are told of vxlan", told("vxlan vxlan wireguard wireguard 1"))
	label("b")
	f.eventually("both are told of wireguard", told("  wireguard wireguard 0"))
	f.must(patch("cable", `{"driver":"vxlan","unencrypted":true,"port":4500,"vxlanPort":4800}`))
	f.eventually("all are told of vxlan", told("vxlan vxlan wireguard wireguard 1"))
}
