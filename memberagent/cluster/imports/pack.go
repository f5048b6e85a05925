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
	home := homes(in.Slices, prefix)
	// chunks are the places in the group of the endpoints that a slice gets, by the slice's number.
	chunks := map[int][]int{}
	var homeless []int
	for i := range g.endpoints {
		n, ok := home[g.endpoints[i].Addresses[0]]
		if !ok || len(chunks[n]) >= maxEndpoints {
			homeless = append(homeless, i)
			continue
		}
		chunks[n] = append(chunks[n], i)
	}
	for n := 0; len(homeless) > 0; n++ {
		room := min(maxEndpoints-len(chunks[n]), len(homeless))
		chunks[n] = append(chunks[n], homeless[:room]...)
		homeless = homeless[room:]
	}
	var out []discoveryv1.EndpointSlice
	for n, places := range chunks {
		if len(places) == 0 {
			continue
		}
		slices.Sort(places)
		endpoints := make([]discoveryv1.Endpoint, 0, len(places))
		for _, i := range places {
			endpoints = append(endpoints, g.endpoints[i])
		}
		out = append(out, endpointSlice(in, g, prefix+strconv.Itoa(n), endpoints))
	}
	slices.SortFunc(out, func(a, b discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// homes returns the number of the slice, among those of a group, that an address is in.
func homes(all []discoveryv1.EndpointSlice, prefix string) map[string]int {
	home := map[string]int{}
	for i := range all {
		number, ours := strings.CutPrefix(all[i].Name, prefix)
		n, err := strconv.Atoi(number)
		if !ours || err != nil || n < 0 {
			continue
		}
		for _, e := range all[i].Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			if at, ok := home[e.Addresses[0]]; !ok || n < at {
				home[e.Addresses[0]] = n
			}
		}
	}
	return home
}

// slicePrefix names a group: what it is about, not what is in it.
func slicePrefix(in *Input, g group) string {
	h := sha256.New()
	fmt.Fprintln(h, in.Import.Settings.Type, g.cluster, g.family)
	if in.Import.Mode == v1alpha1.ServiceModeClusterIP && g.purpose == published {
		fmt.Fprintln(h, in.Import.Mode)
	}
	for _, p := range g.ports {
		fmt.Fprintf(h, "%q %s %d\n", p.Name, p.Protocol, p.Port)
	}
	return DerivedName(in.Key) + "-" + hex.EncodeToString(h.Sum(nil)[:4]) + "-"
}

func endpointSlice(in *Input, g group, name string, endpoints []discoveryv1.Endpoint) discoveryv1.EndpointSlice {
	out := discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in.Key.Namespace, Name: name,
			Labels: map[string]string{discoveryv1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelImport: in.Key.Name},
		},
		AddressType: g.family,
		Endpoints:   endpoints,
		Ports:       make([]discoveryv1.EndpointPort, 0, len(g.ports)),
	}
	if g.purpose != expiring {
		out.Labels[mcs.LabelServiceName], out.Labels[mcs.LabelSourceCluster] = in.Key.Name, g.cluster
	}
	if g.purpose != published {
		out.Labels[discoveryv1.LabelServiceName] = DerivedName(in.Key)
	}
	for _, p := range g.ports {
		port := discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &p.Port}
		for _, s := range in.Import.Settings.Ports {
			if s.Name == p.Name {
				port.AppProtocol = clone(s.AppProtocol)
			}
		}
		out.Ports = append(out.Ports, port)
	}
	return out
}
