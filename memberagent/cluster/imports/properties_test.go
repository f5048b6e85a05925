// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// step changes what one import depends on at random.
func step(r *rand.Rand, in *Input) {
	in.Now = in.Now.Add(time.Duration(r.IntN(40)) * time.Second)
	if r.IntN(12) == 0 {
		in.Import = nil
		return
	}
	clusters := map[string][]string{}
	for _, c := range []string{"c1", "c2", "c3", "down"} {
		if r.IntN(3) > 0 {
			clusters[c] = nil
			for _, ports := range []string{"http:8080", "dns:53,http:8080", "dns:5353"}[r.IntN(3):] {
				clusters[c] = append(clusters[c], ports+"="+someAddresses(r))
			}
		}
	}
	fresh := input(clusters)
	in.Import, in.Connected = fresh.Import, fresh.Connected
	for i := range in.Import.Clusters {
		in.Import.Clusters[i].ClusterIPs = []string{fmt.Sprintf("10.99.0.%d", i+1), fmt.Sprintf("fd00:99::%d",
			i+1)}[:1+r.IntN(2)]
	}
	if r.IntN(4) > 0 {
		local(in, []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}, "http:8080="+someAddresses(r))
		in.LocalService.Spec.ClusterIPs = []string{"10.88.0.1"}
	}
	switch r.IntN(4) {
	case 0:
		in.Import.Settings.Type = v1alpha1.Headless
	case 1:
		in.Import.Mode = v1alpha1.ServiceModeClusterIP
	}
	switch r.IntN(4) {
	case 0:
		in.Import.Choice = weights(v1alpha1.ClusterWeight{Cluster: "c2", Weight: int32(r.IntN(5))},
			v1alpha1.ClusterWeight{Cluster: "c1", Weight: 2})
	case 1:
		in.Import.Choice = &v1alpha1.ClusterChoice{Failover: &v1alpha1.FailoverPolicy{Clusters: []string{"c3", "Local"},
			MinReadyBackends: int32(r.IntN(5))}}
	}
	families := [][]corev1.IPFamily{{"IPv4"}, {"IPv6"}, {"IPv4", "IPv6"}, {"IPv6", "IPv4"}}
	in.Import.Settings.IPFamilies, in.Families = families[r.IntN(4)], families[r.IntN(4)]
	in.Import.Settings.TrafficDistribution = []*string{nil, ptr.To("PreferClose"), ptr.To("PreferSameNode")}[r.IntN(3)]
}

func someAddresses(r *rand.Rand) string {
	text := "10.9.200.1@z"
	for range r.IntN(300) {
		a := fmt.Sprintf(",10.9.%d.%d@z", r.IntN(3), r.IntN(250))
		if r.IntN(4) == 0 {
			a = fmt.Sprintf(",fd00::%x", 1+r.IntN(500))
		}
		text += a + []string{"", "", "", "!", "~"}[r.IntN(5)]
	}
	return text
}

// carryOut makes the decision true, as an API server would.
func carryOut(r *rand.Rand, in *Input, d Decision) {
	if d.Service != nil && d.Service.UID == "" {
		d.Service.UID = "u"
		for _, f := range d.Service.Spec.IPFamilies[len(d.Service.Spec.ClusterIPs):] {
			d.Service.Spec.ClusterIPs = append(d.Service.Spec.ClusterIPs, map[corev1.IPFamily]string{"IPv4": "10.96.0.7",
				"IPv6": "fd00:96::7"}[f])
		}
		d.Service.Spec.ClusterIP = d.Service.Spec.ClusterIPs[0]
	}
	in.Service, in.ServiceImport, in.Slices = d.Service, d.ServiceImport, d.Slices
	r.Shuffle(len(in.Slices), func(i, j int) { in.Slices[i], in.Slices[j] = in.Slices[j], in.Slices[i] })
}

// TestRandomWalk: whatever happened before, what is decided once stands, and holds what it should.
func TestRandomWalk(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		in := input(nil)
		in.NodeHints = true
		for n := range 25 {
			step(r, &in)
			d := Decide(in)
			if problem := wrong(&in, d); problem != "" {
				t.Fatalf("seed %d, step %d: %s", seed, n, problem)
			}
			carryOut(r, &in, d)
			again := Decide(in)
			slices.SortFunc(in.Slices, func(a, b discoveryv1.EndpointSlice) int { return len(a.Name) - len(b.Name) })
			if !sameSlices(d.Slices, again.Slices) || !reflect.DeepEqual(d.Service, again.Service) || again.Again != d.Again {
				t.Fatalf("seed %d, step %d: decided anew without a change:\n%s\nbefore:\n%s\n%+v\n%+v", seed, n, text(again.Slices),
					text(d.Slices), again.Service, d.Service)
			}
		}
	}
}

func sameSlices(a, b []discoveryv1.EndpointSlice) bool {
	byName := map[string]discoveryv1.EndpointSlice{}
	for _, s := range a {
		byName[s.Name] = s
	}
	return len(a) == len(b) && !slices.ContainsFunc(b,
		func(s discoveryv1.EndpointSlice) bool { return !reflect.DeepEqual(byName[s.Name], s) })
}

// wrong says what is wrong with a decision, in the terms of the API's rules.
func wrong(in *Input, d Decision) string {
	names := map[string]bool{}
	for _, s := range d.Slices {
		cluster, seen := s.Labels[mcs.LabelSourceCluster], map[string]bool{}
		switch {
		case names[s.Name]:
			return "two slices of one name"
		case len(s.Endpoints) == 0 || len(s.Endpoints) > maxEndpoints:
			return fmt.Sprintf("%d endpoints in a slice", len(s.Endpoints))
		case cluster == "down":
			return "a cluster out of reach is listed"
		case s.Labels[discoveryv1.LabelServiceName] != "" && d.Service == nil:
			return "a slice of a Service that there is not"
		case !slices.Contains(in.Families, corev1.IPFamily(s.AddressType)) || !slices.Contains(in.Import.Settings.IPFamilies,
			corev1.IPFamily(s.AddressType)):
			return "a family that is not in common"
		}
		names[s.Name] = true
		for _, e := range s.Endpoints {
			a, ok := parse(e.Addresses[0])
			if !ok || addressType(familyOf(a)) != s.AddressType || seen[e.Addresses[0]] {
				return "address " + e.Addresses[0]
			}
			seen[e.Addresses[0]] = true
			if !*e.Conditions.Ready && !*e.Conditions.Serving || (e.NodeName != nil) != (cluster == in.ClusterID &&
				e.Addresses[0] != "10.88.0.1") && cluster != "" {
				return fmt.Sprintf("endpoint %+v of %s", e, cluster)
			}
		}
	}
	if (d.ServiceImport == nil) != (in.Import == nil) {
		return "the ServiceImport"
	}
	return ""
}
