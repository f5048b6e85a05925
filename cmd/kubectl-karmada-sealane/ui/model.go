// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"math"
	"slices"

	"github.com/sealane-io/sealane/internal/clip"
)

// What a Map holds at most; Map.Left counts what is left out.
const (
	MaxClusters = 150
	MaxServices = 1000
	MaxProblems = 500
	// maxList bounds every list of a cluster, an edge or a service, and maxName and maxText names and texts, in bytes.
	// maxFew bounds those that have few entries, or long ones.
	maxList, maxFew = 256, 16
	maxName         = 253
	maxText         = 1024
	// maxTunnels bounds those of an edge: eight gateways of one cluster to four of the other, from both ends.
	maxTunnels = 64
)

// MaxGraph is how many clusters are drawn as a graph. More are drawn as a matrix, in which lines do not cross.
const MaxGraph = 20

// State of the connection of two clusters.
type State string

// The states.
const (
	// Connected: each of the two reaches the other, by every tunnel that there is.
	Connected State = "connected"
	// Impaired: they reach each other, and a tunnel is down or loses packets.
	Impaired   State = "impaired"
	Connecting State = "connecting"
	Down       State = "down"
	// Unknown: nobody reports of it.
	Unknown State = "unknown"
)

// States are all of them, the best first.
func States() []State { return []State{Connected, Impaired, Connecting, Down, Unknown} }

// Symbol is what shows a state to those who see no colours.
func (s State) Symbol() string {
	switch s {
	case Connected:
		return "✓"
	case Impaired:
		return "!"
	case Connecting:
		return "…"
	case Down:
		return "✕"
	}
	return "?"
}

// Verdicts on a cluster, and of a problem, as diagnose gives them.
const (
	OK   = "ok"
	Warn = "warn"
	Fail = "fail"
)

// Map is the network at one time.
type Map struct {
	// Taken is that time, by RFC 3339. Two maps that differ in nothing else are the same.
	Taken    string    `json:"taken"`
	Clusters []Cluster `json:"clusters"`
	Edges    []Edge    `json:"edges"`
	Services []Service `json:"services"`
	Problems []Problem `json:"problems"`
	// Left is how many clusters, services and problems are left out.
	Left Left `json:"left"`
	// Domain of names of services, such as clusterset.local.
	Domain string `json:"domain,omitempty"`
}

// Left counts what a Map has no room for.
type Left struct {
	Clusters int `json:"clusters"`
	Services int `json:"services"`
	Problems int `json:"problems"`
}

// Cluster is one member.
type Cluster struct {
	Name string `json:"name"`
	Set  string `json:"set,omitempty"`
	// Verdict is the worst of all checks on it.
	Verdict  string `json:"verdict"`
	Accepted string `json:"accepted"`
	// Message says why it is not accepted, Unasked why it could not be asked.
	Message  string    `json:"message,omitempty"`
	Unasked  string    `json:"unasked,omitempty"`
	Pods     []string  `json:"pods,omitempty"`
	Services []string  `json:"services,omitempty"`
	Global   []string  `json:"global,omitempty"`
	Gateways []Gateway `json:"gateways,omitempty"`
	// X and Y are where it is drawn, as of a sheet of Width and Height.
	X int `json:"x"`
	Y int `json:"y"`
}

// Gateway is a gateway node.
type Gateway struct {
	Name    string `json:"name"`
	Slot    int32  `json:"slot"`
	HA      string `json:"ha"`
	Ready   string `json:"ready,omitempty"`
	Cable   string `json:"cable,omitempty"`
	Key     string `json:"key,omitempty"`
	Version string `json:"version,omitempty"`
	Summary string `json:"summary,omitempty"`
}

// Edge is what is between two clusters, A before B.
type Edge struct {
	A     string `json:"a"`
	B     string `json:"b"`
	State State  `json:"state"`
	// RTT in microseconds and Loss in percent are the worst of the tunnels that carry; absent where none is measured.
	RTT  *int64 `json:"rtt,omitempty"`
	Loss *int32 `json:"loss,omitempty"`
	// Ways say which way packets take where nodes connect without gateways.
	Ways    []string `json:"ways,omitempty"`
	Tunnels []Tunnel `json:"tunnels,omitempty"`
}

// Tunnel is a cable as the gateway at one end sees it.
type Tunnel struct {
	From          string `json:"from"`
	Gateway       string `json:"gateway,omitempty"`
	RemoteGateway string `json:"remoteGateway,omitempty"`
	Status        string `json:"status"`
	// Since is when the status last changed, by RFC 3339; "" where that is not known.
	Since   string `json:"since,omitempty"`
	Carries bool   `json:"carries"`
	Address string `json:"address,omitempty"`
	NAT     bool   `json:"nat,omitempty"`
	RTT     *int64 `json:"rtt,omitempty"`
	Loss    *int32 `json:"loss,omitempty"`
	// Rounded says that RTT and Loss are steps, of a member that could not be asked, and of all its tunnels to the other.
	Rounded bool `json:"rounded,omitempty"`
	// Received and Sent are rates, with their unit; "" where none is known.
	Received string `json:"received,omitempty"`
	Sent     string `json:"sent,omitempty"`
	MTU      int32  `json:"mtu,omitempty"`
	Message  string `json:"message,omitempty"`
}

// Service is one that is exported, or meant to be.
type Service struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Type      string   `json:"type,omitempty"`
	Mode      string   `json:"mode,omitempty"`
	Policy    string   `json:"policy,omitempty"`
	Ports     []string `json:"ports,omitempty"`
	Exports   []Export `json:"exports,omitempty"`
	Imports   []Import `json:"imports,omitempty"`
	Problems  []string `json:"problems,omitempty"`
}

// Export is a service in a cluster that exports it, or is to.
type Export struct {
	Cluster  string `json:"cluster"`
	State    string `json:"state"`
	Backends string `json:"backends,omitempty"`
	Message  string `json:"message,omitempty"`
}

// Import is a service in a cluster that uses it, with the clusters that serve it there.
type Import struct {
	Cluster string    `json:"cluster"`
	Ready   string    `json:"ready"`
	IPs     []string  `json:"ips,omitempty"`
	Served  []Serving `json:"served,omitempty"`
	Message string    `json:"message,omitempty"`
}

// Serving is how many endpoints of a cluster serve.
type Serving struct {
	Cluster   string `json:"cluster"`
	Endpoints int    `json:"endpoints"`
}

// Problem is a check that is not ok.
type Problem struct {
	Cluster  string `json:"cluster,omitempty"`
	Check    string `json:"check"`
	Verdict  string `json:"verdict"`
	Expected string `json:"expected,omitempty"`
	Found    string `json:"found"`
	Remedy   string `json:"remedy,omitempty"`
}

// Explanation of a packet's way, as the command explain has it; Error says why there is none.
type Explanation struct {
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
	Arrives string `json:"arrives,omitempty"`
	Steps   []Step `json:"steps,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Step of a packet's way.
type Step struct {
	At       string `json:"at,omitempty"`
	Name     string `json:"step"`
	Verdict  string `json:"verdict"`
	Found    string `json:"found"`
	Expected string `json:"expected,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
}

// Bounded returns the Map sorted, laid out and within its bounds, with texts that are fit to be shown.
func (m Map) Bounded() Map {
	// What was given stays as it is: a snapshot is read by others meanwhile.
	m.Clusters, m.Edges = slices.Clone(m.Clusters), slices.Clone(m.Edges)
	m.Services, m.Problems = slices.Clone(m.Services), slices.Clone(m.Problems)
	m.sort()
	keep(&m.Clusters, MaxClusters, &m.Left.Clusters)
	keep(&m.Services, MaxServices, &m.Left.Services)
	keep(&m.Problems, MaxProblems, &m.Left.Problems)
	there := map[string]bool{}
	for i := range m.Clusters {
		there[m.Clusters[i].Name] = true
	}
	m.Edges = slices.DeleteFunc(m.Edges, func(e Edge) bool { return !there[e.A] || !there[e.B] })
	m.clean()
	m.place()
	return m
}

// keep cuts a list, which is not nil then, and counts what it loses.
func keep[T any](list *[]T, limit int, left *int) {
	if *list == nil {
		*list = []T{}
	}
	if len(*list) > limit {
		*left += len(*list) - limit
		*list = (*list)[:limit]
	}
}

func (m *Map) sort() {
	slices.SortFunc(m.Clusters, func(a, b Cluster) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(m.Edges, func(a, b Edge) int { return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B)) })
	slices.SortFunc(m.Services, func(a, b Service) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	worst := []string{Fail, Warn}
	slices.SortStableFunc(m.Problems, func(a, b Problem) int {
		return cmp.Compare(slices.Index(worst, a.Verdict), slices.Index(worst, b.Verdict))
	})
}

// The sheet that a Map is drawn on.
const (
	Width  = 1000
	Height = 640
)

// place puts the clusters on an ellipse, the first at the top, or at the left if there are two.
func (m *Map) place() {
	const acrossHalf, downHalf = 380, 235
	n := len(m.Clusters)
	for i := range m.Clusters {
		c := &m.Clusters[i]
		angle := 2*math.Pi*float64(i)/float64(n) - math.Pi/2
		switch n {
		case 1:
			c.X, c.Y = Width/2, Height/2
			continue
		case 2:
			angle -= math.Pi / 2
		}
		c.X = Width/2 + int(math.Round(acrossHalf*math.Cos(angle)))
		c.Y = Height/2 + int(math.Round(downHalf*math.Sin(angle)))
	}
	if n == 0 {
		return
	}
	// An odd number of them leaves room at the bottom.
	byHeight := func(a, b Cluster) int { return cmp.Compare(a.Y, b.Y) }
	down := (Height - slices.MinFunc(m.Clusters, byHeight).Y - slices.MaxFunc(m.Clusters, byHeight).Y) / 2
	for i := range m.Clusters {
		m.Clusters[i].Y += down
	}
}

// name and text make fit for a page what a member chose.
func name(s *string) { *s = clip.Text(clip.Line(*s), maxName) }

func text(s *string) { *s = clip.Text(clip.Line(*s), maxText) }

// list and few cut a list, of which they make a copy, and make each of it fit.
func list[T any](items *[]T, each func(*T)) { cut(items, maxList, each) }

func few[T any](items *[]T, each func(*T)) { cut(items, maxFew, each) }

func cut[T any](items *[]T, most int, each func(*T)) {
	*items = slices.Clone((*items)[:min(len(*items), most)])
	for i := range *items {
		each(&(*items)[i])
	}
}
