// SPDX-License-Identifier: Apache-2.0

package hijack

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// settings have what is hijacked and the annotation, each with spaces between; "-" is none.
func settings(list, ours string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"podCIDRType": "auto"}}}
	if list != "-" {
		_ = unstructured.SetNestedStringSlice(o.Object, strings.Fields(list), "spec", "hijackCIDR")
	}
	if ours != "-" {
		o.SetAnnotations(map[string]string{Annotation: strings.ReplaceAll(ours, " ", ",")})
	}
	return o
}

func TestWant(t *testing.T) {
	for _, c := range []struct{ name, list, ours, networks, wantList, wantOurs string }{
		{"nothing of nothing", "-", "-", "", "", ""},
		{"the first", "-", "-", "10.9.0.0/16", "10.9.0.0/16", "10.9.0.0/16"},
		{"behind others", "169.254.0.0/16", "-", "10.9.0.0/16 fd09::/48", "169.254.0.0/16 10.9.0.0/16 fd09::/48",
			"10.9.0.0/16 fd09::/48"},
		{"there already", "169.254.0.0/16 10.9.0.0/16", "10.9.0.0/16", "10.9.0.0/16", "", ""},
		{"one that others have", "10.9.0.0/16", "-", "10.9.0.0/16 10.99.0.0/16", "10.9.0.0/16 10.99.0.0/16", "10.99.0.0/16"},
		{"all that others have", "10.9.0.0/16", "-", "10.9.0.0/16", "", ""},
		{"another cluster instead", "169.254.0.0/16 10.9.0.0/16", "10.9.0.0/16", "10.7.0.0/16", "169.254.0.0/16 10.7.0.0/16",
			"10.7.0.0/16"},
		{"others add behind it", "10.9.0.0/16 169.254.0.0/16", "10.9.0.0/16", "10.9.0.0/16", "169.254.0.0/16 10.9.0.0/16",
			"10.9.0.0/16"},
		{"taken out by others", "169.254.0.0/16", "10.9.0.0/16", "10.9.0.0/16", "169.254.0.0/16 10.9.0.0/16", "10.9.0.0/16"},
		{"the end", "169.254.0.0/16 10.9.0.0/16", "10.9.0.0/16", "", "169.254.0.0/16", "-"},
		{"the end, alone", "10.9.0.0/16", "10.9.0.0/16", "", "-", "-"},
		{"a mark that is empty", "10.9.0.0/16", "", "", "10.9.0.0/16", "-"},
	} {
		got, err := Want(settings(c.list, c.ours), strings.Fields(c.networks))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if c.wantList == "" {
			if got != nil {
				t.Errorf("%s: expected no change, found %v", c.name, got.Object)
			}
			continue
		}
		list, ours := "-", "-"
		if found, ok, err := unstructured.NestedStringSlice(got.Object, "spec", "hijackCIDR"); err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if ok {
			list = strings.Join(found, " ")
		}
		if text, ok := got.GetAnnotations()[Annotation]; ok {
			ours = strings.ReplaceAll(text, ",", " ")
		}
		if list != c.wantList || ours != c.wantOurs {
			t.Errorf("%s: expected %q, of which ours %q, found %q and %q", c.name, c.wantList, c.wantOurs, list, ours)
		}
		if again, err := Want(got, strings.Fields(c.networks)); again != nil || err != nil {
			t.Errorf("%s: not settled: %v, %v", c.name, again, err)
		}
	}
	broken := settings("-", "-")
	broken.Object["spec"] = map[string]any{"hijackCIDR": "10.9.0.0/16"}
	if got, err := Want(broken, nil); err == nil {
		t.Errorf("expected an error of what is no list, found %v", got)
	}
}

func TestNetworksOfOthers(t *testing.T) {
	p := &v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{RemoteClusters: []v1alpha1.RemoteCluster{
		{Name: "c2", Networks: v1alpha1.Networks{PodCIDRs: []string{"10.9.128.0/17", "10.9.0.0/17"},
			ServiceCIDRs: []string{"10.99.0.0/16", "0.0.0.0/0", "169.254.0.0/16", "10.7.0.1/16"}}},
		{Name: "c3", GlobalCIDR: "242.0.0.0/16"},
	}}}
	if got := strings.Join(Networks(p), " "); got != "10.9.0.0/16 10.99.0.0/16 242.0.0.0/16" {
		t.Error(got)
	}
	if p.Spec.Phase = v1alpha1.MemberLeaving; len(Networks(p)) > 0 {
		t.Error("a cluster that leaves has other clusters")
	}
}
