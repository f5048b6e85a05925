// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// of returns what stands for a cluster in the import of another: "10.1.0.1 10.1.0.2 on http:8080" per group,
// or the number of addresses where they are many, and the ready backends behind.
func of(i *v1alpha1.Import, cluster string) string {
	for _, c := range i.Clusters {
		if c.Cluster != cluster {
			continue
		}
		var out []string
		for _, g := range c.Backends {
			var addresses, ports []string
			for _, b := range g.Addresses {
				addresses = append(addresses, b.IP)
			}
			if len(addresses) > 3 {
				addresses = []string{fmt.Sprintf("%d pods", len(addresses))}
			}
			for _, p := range g.Ports {
				ports = append(ports, fmt.Sprintf("%s:%d", p.Name, p.Port))
			}
			out = append(out, strings.Join(addresses, " ")+" on "+strings.Join(ports, ","))
		}
		if c.ReadyBackends != nil {
			out = append(out, fmt.Sprintf("%d behind", *c.ReadyBackends))
		}
		return strings.Join(out, "; ")
	}
	return "absent"
}

func backends(count int) func(*v1alpha1.Export) {
	return func(e *v1alpha1.Export) { e.Backends = []v1alpha1.Backends{pods(1, count, e.Backends[0].Ports...)} }
}

func TestEndpoints(t *testing.T) {
	failover := &v1alpha1.ClusterChoice{Failover: &v1alpha1.FailoverPolicy{Clusters: []string{"Local"}}}
	weights := &v1alpha1.ClusterChoice{Weights: []v1alpha1.ClusterWeight{{Cluster: "c1", Weight: 1}}}
	mode := func(m v1alpha1.ServiceMode) func(*v1alpha1.Export) {
		return func(e *v1alpha1.Export) { e.Mode = m }
	}
	notReady := func(e *v1alpha1.Export) {
		for i := range e.Backends[0].Addresses {
			e.Backends[0].Addresses[i].Ready = false
		}
	}
	onePortReady := func(e *v1alpha1.Export) {
		withPorts(port("http", 80), port("admin", 81))(e)
		e.Backends = []v1alpha1.Backends{pods(1, 2, v1alpha1.BackendPort{Name: "http", Protocol: "TCP", Port: 8080})}
	}
	noIP := func(e *v1alpha1.Export) { e.ClusterIPs = nil }
	dual := func(e *v1alpha1.Export) {
		e.ClusterIPs = append(e.ClusterIPs, "fd00:1:1::10")
		e.Settings.IPFamilies = append(e.Settings.IPFamilies, corev1.IPv6Protocol)
		e.Backends[0].Addresses = append(e.Backends[0].Addresses, v1alpha1.Backend{IP: "fd00:1::5", Ready: true,
			Serving: true})
	}
	byIP := v1alpha1.ServicesSpec{Endpoints: v1alpha1.EndpointModeClusterIP}
	tests := []struct {
		name     string
		services v1alpha1.ServicesSpec
		choice   *v1alpha1.ClusterChoice
		export   []func(*v1alpha1.Export)
		want     string
	}{
		{"pods by default", v1alpha1.ServicesSpec{}, nil, []func(*v1alpha1.Export){backends(2)},
			"10.1.0.1 10.1.0.2 on http:8080"},
		{"a hundred pods", v1alpha1.ServicesSpec{}, nil, []func(*v1alpha1.Export){backends(100)}, "100 pods on http:8080"},
		{"more pods are the ClusterIP", v1alpha1.ServicesSpec{}, nil, []func(*v1alpha1.Export){backends(101)},
			"10.101.0.10 on http:80"},
		{"and are counted for a failover", v1alpha1.ServicesSpec{}, failover, []func(*v1alpha1.Export){backends(300)},
			"10.101.0.10 on http:80; 101 behind"},
		{"the ClusterSet asks for ClusterIPs", byIP, nil, nil, "10.101.0.10 on http:80"},
		{"the count is there for a failover", byIP, failover, nil, "10.101.0.10 on http:80; 3 behind"},
		{"and not for weights", byIP, weights, nil, "10.101.0.10 on http:80"},
		{"pods are not counted: they are there", v1alpha1.ServicesSpec{}, failover, []func(*v1alpha1.Export){backends(1)},
			"10.1.0.1 on http:8080"},
		{"a ClusterIP with nothing ready behind it is none", byIP, failover, []func(*v1alpha1.Export){notReady}, ""},
		{"only ports with a ready backend", byIP, nil, []func(*v1alpha1.Export){onePortReady}, "10.101.0.10 on http:80"},
		{"without a ClusterIP pods stand for themselves", byIP, nil, []func(*v1alpha1.Export){noIP, backends(1)},
			"10.1.0.1 on http:8080"},
		{"but not where DNS answers the ClusterIP", v1alpha1.ServicesSpec{Mode: "ClusterIP"}, nil,
			[]func(*v1alpha1.Export){noIP}, ""},
		{"the mode of the ClusterSet", v1alpha1.ServicesSpec{Mode: "ClusterIP"}, nil, nil, "10.101.0.10 on http:80"},
		{"the mode of the export", v1alpha1.ServicesSpec{}, nil, []func(*v1alpha1.Export){mode("ClusterIP")},
			"10.101.0.10 on http:80"},
		{"the mode of the export against the ClusterSet's", v1alpha1.ServicesSpec{Mode: "ClusterIP"}, nil,
			[]func(*v1alpha1.Export){mode("ClusterSetIP"), backends(1)}, "10.1.0.1 on http:8080"},
		{"one ClusterIP of each family", byIP, failover, []func(*v1alpha1.Export){dual}, "10.101.0.10 fd00:1:1::10 on " +
			"http:80; 3 behind"},
		{"a headless service has its pods", v1alpha1.ServicesSpec{Mode: "ClusterIP", Endpoints: "ClusterIP"}, failover,
			[]func(*v1alpha1.Export){backends(120), headless}, "120 pods on http:8080"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := Input{Shards: 1, Now: now, Services: tt.services, Members: []Member{cluster(1, web(1, tt.export...)),
				cluster(2)}}
			in.Policies = []v1alpha1.ServicePolicy{servicePolicy("web", tt.choice, nil), servicePolicy("other", failover, nil)}
			i := Decide(in).Bundles["c2"].Imports[0]
			if got := of(i, "c1"); got != tt.want {
				t.Errorf("endpoints %s, want %s", got, tt.want)
			}
			if i.Settings.Type == v1alpha1.Headless && (i.Mode != "" || i.Choice != nil) {
				t.Errorf("a headless service has mode %q and choice %v", i.Mode, i.Choice)
			}
		})
	}
}

// A service whose size hovers around the cap changes once, not with every pod.
func TestHoveringAroundTheCapDoesNotFlap(t *testing.T) {
	members := []Member{cluster(1), cluster(2), cluster(3)}
	for _, step := range []struct {
		pods int
		want string
	}{
		{99, "99 pods on http:8080"}, {100, "100 pods on http:8080"}, {101, "10.101.0.10 on http:80"},
		{100, "10.101.0.10 on http:80"},
		{102, "10.101.0.10 on http:80"}, {81, "10.101.0.10 on http:80"}, {80, "80 pods on http:8080"},
		{81, "81 pods on http:8080"}, {100, "100 pods on http:8080"},
	} {
		members[0].Exports = []v1alpha1.Export{web(1, backends(step.pods))}
		d := decide(members...)
		for _, c := range []string{"c2", "c3"} {
			if got := of(d.Bundles[c].Imports[0], "c1"); got != step.want {
				t.Errorf("with %d pods %s has %s, want %s", step.pods, c, got, step.want)
			}
		}
		for i := range members {
			members[i].Last, members[i].Record = written(t, d, members[i].Cluster)
		}
	}
}

// Only the number of pods is remembered, not that a mode once hid them.
func TestTheClusterIPOfAModeIsNoMemory(t *testing.T) {
	members := []Member{cluster(1, web(1, backends(90),
		func(e *v1alpha1.Export) { e.Mode = v1alpha1.ServiceModeClusterIP })), cluster(2)}
	d := decide(members...)
	for i := range members {
		members[i].Last, members[i].Record = written(t, d, members[i].Cluster)
	}
	members[0].Exports[0].Mode = ""
	if got := of(decide(members...).Bundles["c2"].Imports[0], "c1"); got != "90 pods on http:8080" {
		t.Errorf("endpoints %s", got)
	}
}

func TestModeIsThatOfTheOldestVisibleExport(t *testing.T) {
	ask := func(m v1alpha1.ServiceMode, s *v1alpha1.ImportScope) func(*v1alpha1.Export) {
		return func(e *v1alpha1.Export) { e.Mode, e.Scope = m, s }
	}
	for _, tt := range []struct {
		name     string
		set      v1alpha1.ServiceMode
		c1, c2   func(*v1alpha1.Export)
		want     v1alpha1.ServiceMode // of the import in c3
		conflict string
	}{
		{"nobody asks", "", ask("", nil), ask("", nil), "", "False NoConflicts"},
		{"the ClusterSet asks", "ClusterIP", ask("", nil), ask("", nil), "ClusterIP", "False NoConflicts"},
		{"the oldest asks", "", ask("ClusterIP", nil), ask("", nil), "ClusterIP", "True ServiceModeConflict"},
		{"the newer asks", "", ask("", nil), ask("ClusterIP", nil), "", "True ServiceModeConflict"},
		{"all ask for the default", "", ask("ClusterSetIP", nil), ask("", nil), "", "False NoConflicts"},
		{"the oldest is not to be seen", "", ask("ClusterSetIP", scopeOf()), ask("ClusterIP", nil), "ClusterIP",
			"True ServiceModeConflict"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := Input{Shards: 1, Now: now, Services: v1alpha1.ServicesSpec{Mode: tt.set}}
			in.Members = []Member{cluster(1, web(1, tt.c1)), cluster(2, web(2, tt.c2)), cluster(3)}
			d := Decide(in)
			if got := d.Bundles["c3"].Imports[0].Mode; got != tt.want {
				t.Errorf("mode %q, want %q", got, tt.want)
			}
			if got := condition(d, "c2", "Conflict"); got != tt.conflict {
				t.Errorf("conflict %s, want %s", got, tt.conflict)
			}
		})
	}
}

func TestUnknownModeIsRefused(t *testing.T) {
	d := decide(cluster(1, web(1, func(e *v1alpha1.Export) { e.Mode = "Anycast" })), cluster(2, web(2)))
	if len(d.Problems) != 1 || !strings.Contains(d.Problems[0].Message, "service mode") || imports(d) != "c1:c2 c2:c2" {
		t.Errorf("problems %v, imports %s", d.Problems, imports(d))
	}
}

func TestChoiceIsFilledIn(t *testing.T) {
	in := Input{Shards: 1, Now: now, Members: []Member{cluster(1, web(1))}}
	in.Policies = []v1alpha1.ServicePolicy{servicePolicy("web",
		&v1alpha1.ClusterChoice{Failover: &v1alpha1.FailoverPolicy{Clusters: []string{"c2"}}}, nil)}
	if c := Decide(in).Bundles["c1"].Imports[0].Choice; c == nil || c.Failover.MinReadyBackends != 1 {
		t.Errorf("choice %+v: a default that Karmada would fill in is drift", c)
	}
	in.Policies[0].Spec.Choice = &v1alpha1.ClusterChoice{}
	if c := Decide(in).Bundles["c1"].Imports[0].Choice; c != nil {
		t.Errorf("choice %+v", c)
	}
}
