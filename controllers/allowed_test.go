// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/fabric"
)

// allow changes the allowed networks of the ClusterSet blue.
func (f *fleet) allow(cidrs ...string) error {
	var set v1alpha1.ClusterSet
	f.must(f.client.Get(f.t.Context(), client.ObjectKey{Name: "blue"}, &set))
	before := set.DeepCopy()
	set.Spec.AllowedCIDRs = cidrs
	return f.client.Patch(f.t.Context(), &set, client.MergeFrom(before))
}

func TestForeignAddressSpaceIsRefused(t *testing.T) {
	f := newFleet(t)
	f.connect(2)
	var set v1alpha1.ClusterSet
	f.must(f.client.Get(t.Context(), client.ObjectKey{Name: "blue"}, &set))
	if want := new(v1alpha1.ClusterSetSpec).Allowed(); !slices.Equal(set.Spec.AllowedCIDRs, want) {
		t.Errorf("the API server allows %v by default, the code %v", set.Spec.AllowedCIDRs, want)
	}
	for _, cidr := range []string{"10.0.0.0", "10.0.0.1/8", "all", ""} {
		if err := f.allow("10.0.0.0/8", cidr); !apierrors.IsInvalid(err) {
			t.Errorf("allowedCIDRs with %q: %v", cidr, err)
		}
	}

	foreign := facts(3)
	foreign.Networks.PodCIDRs = append(foreign.Networks.PodCIDRs, "140.82.112.0/20")
	f.report("c3", foreign)
	f.karmadaJoin("c3")
	f.choose("blue", "c1", "c2", "c3")
	f.eventually("c3 is refused", func() bool { return f.accepted("c3") == "False/"+v1alpha1.ReasonNotAllowed })
	f.eventually("the ClusterSet says so", func() bool { return strings.Contains(f.problems(), "140.82.112.0/20") })
	if got := f.remotes("c1"); strings.Contains(got, "c3") {
		t.Errorf("c1 is told of %s", got)
	}

	f.must(f.allow("10.0.0.0/8", "140.82.112.0/20"))
	f.eventually("c3 is accepted", func() bool { return f.accepted("c3") == "True/Accepted" })
	f.must(f.allow("10.0.0.0/8"))
	f.eventually("c3 is a problem", func() bool {
		return strings.Contains(f.problems(),
			"keeps what it may no longer claim")
	})
	if got := f.accepted("c3"); got != "True/Accepted" {
		t.Errorf("c3 is %s after the list got narrower", got)
	}

	// What is said of services, which is more than is written within seconds, does not hold that up.
	f.namespace("sample")
	told := func() int {
		var events corev1.EventList
		f.must(f.client.List(t.Context(), &events, client.InNamespace("sample")))
		return len(events.Items)
	}
	made := 0
	for ahead := 0; ahead < 100; ahead = made - told() {
		if made == 2000 {
			t.Fatalf("of %d policies that had an event each, only %d wait to be written: this shows nothing", made, ahead)
		}
		f.policies("sample", made, 50)
		made += 50
	}
	moved := facts(2)
	moved.Networks.PodCIDRs = append(moved.Networks.PodCIDRs, "10.32.0.0/16")
	f.report("c2", moved)
	f.eventually("an event tells of new networks", func() bool {
		var events corev1.EventList
		f.must(f.client.List(t.Context(), &events))
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == fabric.EventNetworksChanged && e.InvolvedObject.Name == "c2" &&
				strings.Contains(e.Message, "10.32.0.0/16")
		})
	})
	if n := told(); n == 0 || n >= made {
		t.Errorf("the event came after %d of %d of services", n, made)
	} else {
		t.Logf("after %d of %d events of services", n, made)
	}
}

// policies makes so many ServicePolicies at once that select nothing, numbered from one on.
func (f *fleet) policies(namespace string, first, count int) {
	f.t.Helper()
	var all errgroup.Group
	for i := range count {
		p := &v1alpha1.ServicePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
			Name: fmt.Sprintf("nothing-%d", first+i)}}
		f.t.Cleanup(func() { f.must(client.IgnoreNotFound(f.client.Delete(context.Background(), p))) })
		all.Go(func() error { return f.client.Create(f.t.Context(), p) })
	}
	f.must(all.Wait())
}
