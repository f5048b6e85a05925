// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// maxEndpoints in one EndpointSlice.
const maxEndpoints = 100

// pack spreads a group over EndpointSlices. An endpoint that has a slice stays in it and a new one goes
// where there is room, so that one change is one write.
func pack(in *Input, g group) []discoveryv1.EndpointSlice {
	prefix := slicePrefix(in, g)
	present := map[int]map[string]bool{}
	for i := range in.Slices {
		s := &in.Slices[i]
		number, ours := strings.CutPrefix(s.Name, prefix)
		if n, err := strconv.Atoi(number); ours && err == nil && n >= 0 {
			present[n] = map[string]bool{}
			for _, e := range s.Endpoints {
				if len(e.Addresses) > 0 {
					present[n][e.Addresses[0]] = true
				}
			}
		}
	}
	numbers := make([]int, 0, len(present))
	for n := range present {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)

	chunks := map[int][]discoveryv1.Endpoint{}
	var homeless []discoveryv1.Endpoint
	for _, e := range g.endpoints {
		at := slices.IndexFunc(numbers, func(n int) bool { return present[n][e.Addresses[0]] && len(chunks[n]) < maxEndpoints })
		if at < 0 {
			homeless = append(homeless, e)
			continue
		}
		chunks[numbers[at]] = append(chunks[numbers[at]], e)
	}
	for n := 0; len(homeless) > 0; n++ {
		room := min(maxEndpoints-len(chunks[n]), len(homeless))
		chunks[n] = append(chunks[n], homeless[:room]...)
		homeless = homeless[room:]
	}
	var out []discoveryv1.EndpointSlice
	for n, endpoints := range chunks {
		if len(endpoints) > 0 {
			slices.SortFunc(endpoints, byAddress)
			out = append(out, endpointSlice(in, g, fmt.Sprint(prefix, n), endpoints))
		}
	}
	slices.SortFunc(out, func(a, b discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// slicePrefix names a group: what it is about, not what is in it.
func slicePrefix(in *Input, g group) string {
	h := sha256.New()
	fmt.Fprintln(h, in.Import.Settings.Type, g.cluster, g.family)
	for _, p := range g.ports {
		fmt.Fprintf(h, "%q %s %d\n", p.Name, p.Protocol, p.Port)
	}
	return DerivedName(in.Key) + "-" + hex.EncodeToString(h.Sum(nil)[:4]) + "-"
}

func endpointSlice(in *Input, g group, name string, endpoints []discoveryv1.Endpoint) discoveryv1.EndpointSlice {
	out := discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in.Key.Namespace, Name: name,
			Labels: map[string]string{
				discoveryv1.LabelManagedBy: v1alpha1.ManagedBy,
				mcs.LabelServiceName:       in.Key.Name,
				mcs.LabelSourceCluster:     g.cluster,
				v1alpha1.LabelImport:       in.Key.Name,
			},
		},
		AddressType: g.family,
		Endpoints:   endpoints,
		Ports:       make([]discoveryv1.EndpointPort, 0, len(g.ports)),
	}
	if in.Import.Settings.Type == v1alpha1.ClusterSetIP {
		out.Labels[discoveryv1.LabelServiceName] = DerivedName(in.Key)
	}
	for _, p := range g.ports {
		port := discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &p.Port}
		for _, s := range in.Import.Settings.Ports {
			if s.Name == p.Name {
				port.AppProtocol = s.AppProtocol
			}
		}
		out.Ports = append(out.Ports, port)
	}
	return out
}
