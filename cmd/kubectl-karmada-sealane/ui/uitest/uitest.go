// SPDX-License-Identifier: Apache-2.0

// Package uitest has maps, and a source of them that tests change.
package uitest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/ui"
)

// Markup is what a hostile member would have a page or a picture run, in place of a name or in a text.
const Markup = `"><img src=x onerror="document.title='run'"></title></style><script>document.title='run'</script>`

// Fleet is a map of n clusters, each connected to each, with a service of the first two that all use. Nothing is wrong.
func Fleet(n int) ui.Map {
	m := ui.Map{Taken: "2026-01-02T03:04:05Z", Domain: "clusterset.local"}
	service := ui.Service{Namespace: "shop", Name: "cart", Type: "ClusterSetIP", Mode: "ClusterSetIP",
		Ports: []string{"http:80/TCP"}}
	for i := range n {
		m.Clusters = append(m.Clusters, cluster(Name(i), i))
		service.Imports = append(service.Imports, ui.Import{Cluster: Name(i), Ready: "True", IPs: []string{"241.0.0.7"},
			Served: []ui.Serving{{Cluster: Name(0), Endpoints: 2}, {Cluster: Name(1), Endpoints: 1}}})
		if i < 2 {
			service.Exports = append(service.Exports, ui.Export{Cluster: Name(i), State: "exported", Backends: "2"})
		}
		for j := range i {
			m.Edges = append(m.Edges, edge(min(Name(i), Name(j)), max(Name(i), Name(j)), int64(400+37*(i+j)%9000)))
		}
	}
	m.Services = append(m.Services, service)
	return m
}

// Name of the cluster of a number, from 0.
func Name(i int) string { return fmt.Sprintf("c%d", i+1) }

func cluster(name string, i int) ui.Cluster {
	gateway := func(slot int32, ha string) ui.Gateway {
		return ui.Gateway{Name: fmt.Sprintf("%s-gw%d", name, slot+1), Slot: slot, HA: ha, Ready: "True", Cable: "Kernel",
			Key: "Current", Version: "v1.2.3", Summary: "all connections are up"}
	}
	return ui.Cluster{Name: name, Set: "default", Verdict: ui.OK, Accepted: "True",
		Pods: []string{fmt.Sprintf("10.%d.0.0/16", i)}, Services: []string{fmt.Sprintf("10.%d.0.0/16", 150+i)},
		Gateways: []ui.Gateway{gateway(0, "Active"), gateway(1, "Standby")}}
}

func edge(a, b string, rtt int64) ui.Edge {
	loss := int32(0)
	tunnel := func(from, to string) ui.Tunnel {
		return ui.Tunnel{From: from, Gateway: from + "-gw1", RemoteGateway: to + "-gw1", Status: "Connected", Carries: true,
			Address: "192.0.2.1:4500", RTT: &rtt, Loss: &loss}
	}
	return ui.Edge{A: a, B: b, State: ui.Connected, RTT: &rtt, Loss: &loss,
		Tunnels: []ui.Tunnel{tunnel(a, b), tunnel(b, a)}}
}

// Cut is the map with the pair of two clusters down, and the problem that says so.
func Cut(m ui.Map, a, b string) ui.Map {
	out := m
	out.Edges = append([]ui.Edge{}, m.Edges...)
	for i := range out.Edges {
		if e := &out.Edges[i]; e.A == a && e.B == b {
			e.State, e.RTT, e.Loss = ui.Down, nil, nil
			e.Tunnels = []ui.Tunnel{{From: a, Gateway: a + "-gw1", RemoteGateway: b + "-gw1", Status: "Error", Carries: true,
				Message: "no probe is answered"}}
		}
	}
	out.Clusters = append([]ui.Cluster{}, m.Clusters...)
	for i := range out.Clusters {
		if c := &out.Clusters[i]; c.Name == a || c.Name == b {
			c.Verdict = ui.Fail
		}
	}
	out.Problems = append([]ui.Problem{}, ui.Problem{Cluster: a, Check: "connections", Verdict: ui.Fail,
		Expected: "an answer to probes from " + a + "-gw1 to " + b + "-gw1 of " + b,
		Found:    a + "-gw1 to " + b + "-gw1 of " + b + ": Error ProbesLost: no probe is answered",
		Remedy:   "see diagnose firewall, which says which way is shut, and the agent of the other gateway"})
	return out
}

// Hostile is a map in which every text that a member chooses is markup.
func Hostile() ui.Map {
	m := Cut(Fleet(3), "c1", "c2")
	for i := range m.Clusters {
		c := &m.Clusters[i]
		c.Message, c.Unasked, c.Accepted, c.Verdict = Markup, "", Markup, Markup
		c.Pods, c.Global = []string{Markup}, []string{Markup}
		c.Gateways = []ui.Gateway{{Name: Markup, HA: Markup, Ready: Markup, Cable: Markup, Key: Markup, Version: Markup,
			Summary: Markup}}
	}
	m.Clusters[2].Name = Markup
	for i := range m.Edges {
		e := &m.Edges[i]
		if e.B == "c3" {
			e.A, e.B = Markup, e.A
		}
		e.Ways = []string{Markup}
		e.Tunnels = []ui.Tunnel{{From: Markup, Gateway: Markup, RemoteGateway: Markup, Status: Markup, Address: Markup,
			Message: Markup}}
	}
	m.Services = []ui.Service{{Namespace: Markup, Name: Markup, Type: Markup, Mode: Markup, Policy: Markup,
		Ports: []string{Markup}, Problems: []string{Markup},
		Exports: []ui.Export{{Cluster: Markup, State: Markup, Backends: Markup, Message: Markup}},
		Imports: []ui.Import{{Cluster: Markup, Ready: Markup, IPs: []string{Markup}, Message: Markup,
			Served: []ui.Serving{{Cluster: Markup, Endpoints: 1}}}}}}
	m.Problems = []ui.Problem{{Cluster: Markup, Check: Markup, Verdict: Markup, Expected: Markup, Found: Markup,
		Remedy: Markup}}
	return m
}

// Source serves what a test sets.
type Source struct {
	mu    sync.Mutex
	now   ui.Map
	err   error
	reads int
	held  chan struct{}
}

// Hold keeps whoever reads waiting until the function that it returns is called.
func (s *Source) Hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.held = held
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held = nil
		close(held)
	}
}

// Set what is read from now on.
func (s *Source) Set(m ui.Map) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now, s.err = m, nil
}

// Fail makes reading fail from now on.
func (s *Source) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Reads is how often it was read.
func (s *Source) Reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// Read implements ui.Source.
func (s *Source) Read(ctx context.Context) (ui.Map, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.held; held != nil {
		s.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
	s.reads++
	return s.now, s.err
}

// Explain implements ui.Source: packets arrive, but for those from nowhere.
func (s *Source) Explain(_ context.Context, from, to string) (*ui.Explanation, error) {
	if from == "nowhere" {
		return nil, errors.New("expected a source\n  found: nowhere\n  to do: name one")
	}
	return &ui.Explanation{From: from, To: to, Arrives: "sometimes", Steps: []ui.Step{
		{At: "c1/c1-w1", Name: "source", Verdict: ui.OK, Found: from + " with 10.8.1.5\nand " + Markup},
		{At: "c1/c1-gw1", Name: "cable", Verdict: ui.Fail, Found: "down", Expected: "a cable that is up",
			Remedy: "see diagnose firewall"}}}, nil
}
