// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
)

// TestPoolOfIPv6IsChecked shows what the API server takes for the pool of IPv6, and that its default is the code's.
func TestPoolOfIPv6IsChecked(t *testing.T) {
	f := newFleet(t)
	f.connect(1)
	var set v1alpha1.ClusterSet
	f.must(f.client.Get(t.Context(), client.ObjectKey{Name: "blue"}, &set))
	if pool, err := globalnet.PoolOf(v1alpha1.GlobalnetSpec{}); err != nil ||
		set.Spec.Globalnet.IPv6CIDR != pool.IPv6.String() {
		t.Errorf("the API server's default is %s, the code's %s: %v", set.Spec.Globalnet.IPv6CIDR, pool.IPv6, err)
	}
	for cidr, ok := range map[string]bool{"fd12:3456:789a::/48": true, "fd12:3456:789a::/56": false,
		"fd12:3456:789a:1::/48": false, "fc00:1:2::/48": false, "2001:db8:1::/48": false, "242.0.0.0/8": false,
		"fd12:3456:789a::": false, "all": false} {
		before := set.DeepCopy()
		set.Spec.Globalnet.IPv6CIDR = cidr
		err := f.client.Patch(t.Context(), &set, client.MergeFrom(before))
		if ok && err != nil || !ok && !apierrors.IsInvalid(err) {
			t.Errorf("ipv6CIDR %s: %v", cidr, err)
		}
		f.must(f.client.Get(t.Context(), client.ObjectKey{Name: "blue"}, &set))
	}
}
