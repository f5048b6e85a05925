// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"strings"

	"github.com/sealane-io/sealane/internal/clip"
)

// clean bounds every text and list, whatever a member put there.
func (m *Map) clean() {
	name(&m.Domain)
	for i := range m.Clusters {
		m.Clusters[i].clean()
	}
	for i := range m.Edges {
		m.Edges[i].clean()
	}
	for i := range m.Services {
		m.Services[i].clean()
	}
	for i := range m.Problems {
		p := &m.Problems[i]
		name(&p.Cluster)
		name(&p.Check)
		name(&p.Verdict)
		text(&p.Expected)
		text(&p.Found)
		text(&p.Remedy)
	}
}

func (c *Cluster) clean() {
	for _, s := range []*string{&c.Name, &c.Set, &c.Verdict, &c.Accepted} {
		name(s)
	}
	text(&c.Message)
	text(&c.Unasked)
	list(&c.Pods, name)
	list(&c.Services, name)
	list(&c.Global, name)
	few(&c.Gateways, func(g *Gateway) {
		for _, s := range []*string{&g.Name, &g.HA, &g.Ready, &g.Cable, &g.Key, &g.Version} {
			name(s)
		}
		text(&g.Summary)
	})
}

func (e *Edge) clean() {
	name(&e.A)
	name(&e.B)
	few(&e.Ways, text)
	if len(e.Tunnels) > maxTunnels {
		e.Tunnels = e.Tunnels[:maxTunnels]
	}
	list(&e.Tunnels, func(t *Tunnel) {
		for _, s := range []*string{&t.From, &t.Gateway, &t.RemoteGateway, &t.Status, &t.Since, &t.Address} {
			name(s)
		}
		text(&t.Message)
	})
}

func (s *Service) clean() {
	for _, t := range []*string{&s.Namespace, &s.Name, &s.Type, &s.Mode} {
		name(t)
	}
	text(&s.Policy)
	few(&s.Ports, name)
	few(&s.Problems, text)
	list(&s.Exports, func(e *Export) {
		name(&e.Cluster)
		name(&e.State)
		name(&e.Backends)
		text(&e.Message)
	})
	list(&s.Imports, func(i *Import) {
		name(&i.Cluster)
		name(&i.Ready)
		few(&i.IPs, name)
		list(&i.Served, func(s *Serving) { name(&s.Cluster) })
		text(&i.Message)
	})
}

func (e *Explanation) clean() {
	const maxSteps = 500
	for _, s := range []*string{&e.From, &e.To, &e.Arrives, &e.Error} {
		lines(s)
	}
	e.Steps = e.Steps[:min(len(e.Steps), maxSteps)]
	for i := range e.Steps {
		step := &e.Steps[i]
		for _, s := range []*string{&step.At, &step.Name, &step.Verdict, &step.Found, &step.Expected, &step.Remedy} {
			lines(s)
		}
	}
}

// lines makes a text of several lines fit.
func lines(s *string) {
	var out []string
	for line := range strings.Lines(clip.Text(*s, 4*maxText)) {
		out = append(out, clip.Line(strings.TrimRight(line, "\n")))
	}
	*s = strings.Join(out, "\n")
}
