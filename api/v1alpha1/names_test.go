// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"testing"
)

func TestParseBundleName(t *testing.T) {
	want := map[string]string{
		BundleName(0): "0 ", BundleName(63): "63 ", HalfName(BundleName(3), "01"): "3 01",
		"sealane-0-0000000000000000": "0 0000000000000000",
	}
	for _, name := range []string{"", "sealane", "sealane-", "sealane--1", "sealane-00", "sealane-+1", "0", "sealane-0-",
		"sealane-0-2", "sealane-0-0-1", "sealane-9999999999", "other-0", "sealane-0-00000000000000000"} {
		want[name] = ""
	}
	for name, want := range want {
		got := ""
		if shard, bits, ok := ParseBundleName(name); ok {
			got = fmt.Sprintf("%d %s", shard, bits)
		}
		if got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

// TestBundleOf: each service is in one half of those that divide a shard, they are filled alike, and which it is never
// changes, as brokers and agents of different versions must agree on it.
func TestBundleOf(t *testing.T) {
	own := &Bundle{}
	own.Name = BundleName(2)
	if got := BundleOf(own, "sample", "web"); got != "sealane-2" {
		t.Errorf("without halves it is %q", got)
	}
	own.Spec.Halves = []string{"0", "10", "11"}
	count := map[string]int{}
	for i := range 10_000 {
		count[BundleOf(own, "sample", fmt.Sprintf("web-%d", i))]++
	}
	if a, b, c := count["sealane-2-0"], count["sealane-2-10"], count["sealane-2-11"]; a+b+c != 10_000 || a < 4_800 ||
		a > 5_200 || b < 2_400 || b > 2_600 {
		t.Errorf("%v", count)
	}
	for service, want := range map[string]string{"web": "sealane-2-10", "db": "sealane-2-0"} {
		if got := BundleOf(own, "sample", service); got != want {
			t.Errorf("%s is in %q, want %q", service, got, want)
		}
	}
	own.Spec.Halves = []string{"", "x"}
	if got := BundleOf(own, "sample", "web"); got != "" {
		t.Errorf("it is in %q of halves that are none", got)
	}
}

func TestInForce(t *testing.T) {
	var bundles []Bundle
	for name, halves := range map[string][]string{BundleName(0): nil, BundleName(1): {"0", "1"},
		HalfName(BundleName(0), "0"): nil,
		HalfName(BundleName(1), "1"): nil, HalfName(BundleName(1), "00"): nil, HalfName(BundleName(2), "0"): nil,
		DeltaName(0): nil} {
		b := Bundle{}
		b.Name, b.Spec.Halves = name, halves
		bundles = append(bundles, b)
	}
	got := map[string]bool{}
	for _, b := range InForce(bundles) {
		got[b.Name] = true
	}
	if len(got) != 3 || !got["sealane-0"] || !got["sealane-1"] || !got["sealane-1-1"] {
		t.Errorf("%v", got)
	}
	if len(bundles) != 7 || bundles[6].Name == "" {
		t.Error("what it was given has changed")
	}
}
