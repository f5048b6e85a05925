// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// rollOut is one on three gateways, which the DaemonSet replaces all at once.
type rollOut struct {
	t       *testing.T
	history *History
	in      Input
}

func newRollOut(t *testing.T) *rollOut {
	r := &rollOut{t: t, history: new(History), in: Input{
		Phase: Active, Nodes: nodes("a+ready b+ready c+ready"), Have: have("a=0 b=1 c=2"), Agents: map[string]NodeAgent{},
		Remotes: 1, Now: noon,
	}}
	for _, name := range []string{"a", "b", "c"} {
		r.in.Agents[name] = NodeAgent{Programmed: true, Revision: "old", Next: "new", Queued: true}
		r.reports(name, v1alpha1.ConnectionConnected)
	}
	return r
}

func (r *rollOut) gateway(name string) *v1alpha1.Gateway {
	for i := range r.in.Have {
		if r.in.Have[i].Name == name {
			return &r.in.Have[i]
		}
	}
	r.t.Fatal(name)
	return nil
}

func (r *rollOut) reports(name string, status v1alpha1.ConnectionStatus) {
	g := r.gateway(name)
	g.Status.ReportedAt = ptr.To(metav1.NewTime(r.in.Now))
	g.Status.Connections = []v1alpha1.Connection{{Cluster: "c2", Status: status}}
}

// takesOver ends the old agent of a gateway.
func (r *rollOut) takesOver(name string) {
	r.in.Agents[name] = NodeAgent{Programmed: true, Revision: "new"}
}

// turn expects whose turn it is after some seconds, in each of which it is written down.
func (r *rollOut) turn(seconds int, want string) {
	r.t.Helper()
	got := ""
	for range seconds {
		r.in.Now = r.in.Now.Add(time.Second)
		got, _ = r.history.turn(r.in)
		for i := range r.in.Have {
			g := &r.in.Have[i]
			g.Spec.Turn = g.Name == got
			if g.Status.SilentSince == nil {
				g.Status.ReportedAt = ptr.To(metav1.NewTime(r.in.Now))
			}
		}
	}
	if got != want {
		r.t.Errorf("after %v it is the turn of %q, want %q", r.in.Now.Sub(noon), got, want)
	}
}

// One gateway after the other is replaced, each when the one before is as well connected as the rest.
func TestGatewaysTakeTurns(t *testing.T) {
	r := newRollOut(t)
	r.turn(1, "a")
	r.in.Agents["a"] = NodeAgent{Programmed: true, Revision: "old", Next: "new"} // it has rehearsed
	r.turn(60, "a")
	r.takesOver("a")
	r.reports("a", v1alpha1.ConnectionConnecting)
	r.turn(1, "")
	r.turn(60, "")
	r.reports("a", v1alpha1.ConnectionConnected)
	r.turn(1, "b")
	r.takesOver("b")
	r.turn(15, "")
	r.turn(1, "c")
	r.takesOver("c")
	r.turn(1, "")
	r.turn(1, "")
	if _, again := r.history.turn(r.in); again != 0 {
		t.Errorf("looked at again after %v, though it is over", again)
	}
}

func TestWhatHoldsATurnUp(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*rollOut)
		want string
	}{
		{"the one before does not come back", func(r *rollOut) {
			r.takesOver("a")
			r.turn(12, "")
			r.gateway("a").Status.SilentSince = ptr.To(metav1.NewTime(noon))
		}, ""},
		{"one that was away before the roll-out does not count", func(r *rollOut) {
			r.takesOver("a")
			delete(r.in.Agents, "c")
			r.gateway("c").Status.SilentSince = ptr.To(metav1.NewTime(noon))
		}, "b"},
		{"the roll-out is taken back", func(r *rollOut) {
			for _, name := range []string{"a", "b", "c"} {
				r.in.Agents[name] = NodeAgent{Programmed: true, Revision: "old"}
			}
		}, ""},
		{"the repair comes while the one before is not well", func(r *rollOut) {
			r.takesOver("a")
			r.gateway("a").Status.SilentSince = ptr.To(metav1.NewTime(noon))
			r.turn(1, "")
			for _, name := range []string{"a", "b", "c"} {
				agent := r.in.Agents[name]
				agent.Next, agent.Queued = "newer", true
				r.in.Agents[name] = agent
			}
		}, "a"},
		{"the node whose turn it is goes away", func(r *rollOut) { r.in.Nodes = nodes("a b+ready c+ready") }, "b"},
		{"a worker waits, too", func(r *rollOut) {
			r.gateway("a").Spec.Turn = false
			r.in.Nodes = nodes("a+ready b+ready c+ready d+ready")
			r.in.Agents["d"] = NodeAgent{Programmed: true, Revision: "old", Next: "new"}
		}, ""},
		{"a worker that is not ready", func(r *rollOut) {
			r.gateway("a").Spec.Turn = false
			r.in.Nodes = nodes("a+ready b+ready c+ready d")
			r.in.Agents["d"] = NodeAgent{Revision: "old", Next: "new"}
		}, "a"},
		{"a worker whose agent is the only one", func(r *rollOut) {
			r.gateway("a").Spec.Turn = false
			r.in.Nodes = nodes("a+ready b+ready c+ready d+ready")
			r.in.Agents["d"] = NodeAgent{Next: "new"}
		}, "a"},
		{"only the last one waits", func(r *rollOut) {
			r.takesOver("a")
			r.in.Agents["b"] = NodeAgent{Programmed: true, Revision: "old"}
		}, "c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRollOut(t)
			r.turn(1, "a")
			tt.do(r)
			r.turn(30, tt.want)
		})
	}
}
