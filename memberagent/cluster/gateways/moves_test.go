// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// cluster is one whose gateways are decided about second by second.
type cluster struct {
	t       *testing.T
	history *History
	now     time.Time
	remotes int
	nodes   map[string]*corev1.Node
	have    []v1alpha1.Gateway
	// broken nodes have no agent that programs them.
	broken map[string]bool
	// moves are the sets of gateways that there were.
	moves []string
}

// newCluster has these nodes, all ready for a day, and one remote cluster.
func newCluster(t *testing.T, names ...string) *cluster {
	c := &cluster{t: t, history: new(History), now: noon, remotes: 1, nodes: map[string]*corev1.Node{},
		broken: map[string]bool{}}
	for _, name := range names {
		c.nodes[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		c.ready(name, true)
		c.nodes[name].Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(-24 * time.Hour))
	}
	c.pass(1)
	c.connects(names...)
	return c
}

func (c *cluster) ready(name string, is bool) {
	status := corev1.ConditionUnknown
	if is {
		status = corev1.ConditionTrue
	}
	c.nodes[name].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status,
		LastTransitionTime: metav1.NewTime(c.now)}}
}

func (c *cluster) cordon(name string, is bool) { c.nodes[name].Spec.Unschedulable = is }

// reports of the gateways among these nodes say that they have this status with c2.
func (c *cluster) reports(status v1alpha1.ConnectionStatus, names ...string) {
	for i := range c.have {
		if g := &c.have[i]; slices.Contains(names, g.Name) {
			g.Status.ReportedAt = ptr.To(metav1.NewTime(c.now))
			g.Status.Connections = []v1alpha1.Connection{{Cluster: "c2", Status: status}}
		}
	}
}

func (c *cluster) connects(names ...string) { c.reports(v1alpha1.ConnectionConnected, names...) }

func (c *cluster) silent(name string, is bool) {
	for i := range c.have {
		if g := &c.have[i]; g.Name == name {
			g.Status.SilentSince = nil
			if is {
				g.Status.SilentSince = ptr.To(metav1.NewTime(c.now))
			}
		}
	}
}

// pass lets seconds pass, in which the gateways decided about come and go and whose reports stay fresh.
func (c *cluster) pass(seconds int) {
	for range seconds {
		var all []corev1.Node
		agents := map[string]NodeAgent{}
		for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
			all = append(all, *c.nodes[name])
			agents[name] = NodeAgent{Programmed: !c.broken[name]}
		}
		for i := range c.have {
			if s := &c.have[i].Status; s.ReportedAt != nil && s.SilentSince == nil {
				s.ReportedAt = ptr.To(metav1.NewTime(c.now))
			}
		}
		slots, _ := c.history.Decide(Input{Phase: Active, Nodes: all, Have: c.have, Agents: agents,
			Remotes: c.remotes,
			Now:     c.now})
		c.have = slices.DeleteFunc(c.have, func(g v1alpha1.Gateway) bool { _, ok := slots[g.Name]; return !ok })
		for _, name := range slices.Sorted(maps.Keys(slots)) {
			if !slices.ContainsFunc(c.have, func(g v1alpha1.Gateway) bool { return g.Name == name }) {
				g := v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: name}}
				g.Spec.Slot = slots[name]
				c.have = append(c.have, g)
			}
		}
		if is := c.gateways(); len(c.moves) == 0 || c.moves[len(c.moves)-1] != is {
			c.moves = append(c.moves, is)
		}
		c.now = c.now.Add(time.Second)
	}
}

func (c *cluster) gateways() string {
	var out []string
	for _, g := range c.have {
		out = append(out, fmt.Sprintf("%s=%d", g.Name, g.Spec.Slot))
	}
	return strings.Join(out, " ")
}

func (c *cluster) are(want string) {
	c.t.Helper()
	if got := c.gateways(); got != want {
		c.t.Errorf("after %v the gateways are %q, want %q; they were %q", c.now.Sub(noon), got, want, c.moves)
	}
}

// A picked gateway that is not well gets another beside it, and goes when that is connected.
func TestAPickedGatewayMoves(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ail   func(*cluster)
		after int // seconds
	}{
		{"its node is not ready", func(c *cluster) { c.ready("a", false) }, 10},
		{"its agent is silent", func(c *cluster) { c.silent("a", true) }, 0},
		{"its node is cordoned", func(c *cluster) { c.cordon("a", true) }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, "a", "b", "c")
			c.pass(5)
			c.are("a=0")
			tt.ail(c)
			c.pass(tt.after)
			c.are("a=0")
			c.pass(1)
			c.are("a=0 b=1")
			c.pass(20)
			c.are("a=0 b=1")
			c.reports(v1alpha1.ConnectionConnecting, "b")
			c.pass(1)
			c.are("a=0 b=1")
			c.connects("b")
			c.pass(1)
			c.are("b=1")
			// It has no better claim when it is well again.
			c.ready("a", true)
			c.cordon("a", false)
			c.pass(300)
			c.are("b=1")
			c.ready("b", false)
			c.pass(12)
			c.connects("a", "c")
			c.pass(1)
			c.are("a=0")
		})
	}
}

func TestWhatHoldsAMoveUp(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*cluster)
		want string
	}{
		{"a node that is not ready for a moment", func(c *cluster) {
			c.ready("a", false)
			c.pass(9)
			c.ready("a", true)
			c.pass(60)
		}, "a=0"},
		{"there is nobody else", func(c *cluster) {
			delete(c.nodes, "b")
			c.ready("a", false)
			c.pass(100)
		}, "a=0"},
		{"the others are no better: nobody hears the nodes", func(c *cluster) {
			c.ready("a", false)
			c.ready("b", false)
			c.pass(100)
		}, "a=0"},
		{"the other is cordoned", func(c *cluster) {
			c.cordon("b", true)
			c.silent("a", true)
			c.pass(100)
		}, "a=0"},
		{"the other has been ready for a moment only", func(c *cluster) {
			c.ready("b", false)
			c.pass(20)
			c.ready("b", true)
			c.ready("a", false)
			c.pass(50)
		}, "a=0"},
		{"and then for long enough", func(c *cluster) {
			c.ready("b", false)
			c.pass(20)
			c.ready("b", true)
			c.ready("a", false)
			c.pass(62)
		}, "a=0 b=1"},
		{"the other has no agent that works", func(c *cluster) {
			c.broken["b"] = true
			c.ready("a", false)
			c.pass(100)
		}, "a=0"},
		{"the clock of the other is an hour ahead", func(c *cluster) {
			c.nodes["b"].Status.Conditions[0].LastTransitionTime = metav1.NewTime(c.now.Add(time.Hour))
			c.pass(50)
			c.cordon("a", true)
			c.pass(2)
			c.are("a=0")
			c.pass(4)
		}, "a=0 b=1"},
		{"the other clusters are away: that proves nothing against a node", func(c *cluster) {
			c.nodes["c"] = c.nodes["b"].DeepCopy()
			c.nodes["c"].Name = "c"
			c.reports(v1alpha1.ConnectionError, "a")
			c.cordon("a", true)
			c.pass(1)
			c.reports(v1alpha1.ConnectionError, "b")
			c.pass(100)
		}, "a=0 b=1"},
		{"there are no other clusters", func(c *cluster) {
			c.remotes, c.have[0].Status.Connections = 0, nil
			c.cordon("a", true)
			c.pass(1)
			c.have[1].Status.ReportedAt = ptr.To(metav1.NewTime(c.now))
			c.pass(1)
		}, "b=1"},
		{"it is well again before the other is connected, and for long", func(c *cluster) {
			c.ready("a", false)
			c.pass(11)
			c.are("a=0 b=1")
			c.ready("a", true)
			c.pass(50)
			c.are("a=0 b=1")
			c.pass(11)
		}, "a=0"},
		{"the agent restarts in the middle", func(c *cluster) {
			c.ready("a", false)
			c.pass(11)
			c.history = new(History)
			c.pass(5)
			c.are("a=0 b=1")
			c.connects("b")
			c.history = new(History)
			c.pass(1)
		}, "b=1"},
		{"its node goes in the middle", func(c *cluster) {
			c.cordon("a", true)
			c.pass(2)
			delete(c.nodes, "a")
			c.pass(1)
		}, "b=1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, "a", "b")
			c.pass(5)
			tt.do(c)
			c.are(tt.want)
		})
	}
}

// A replacement that does not connect to what the gateway before it was connected to gives way to a third.
func TestAReplacementThatDoesNotConnectGivesWay(t *testing.T) {
	c := newCluster(t, "a", "b", "c")
	c.pass(5)
	c.ready("a", false)
	c.pass(11)
	c.reports(v1alpha1.ConnectionConnecting, "b")
	c.pass(58)
	c.are("a=0 b=1")
	c.pass(3)
	c.are("a=0 c=1")
	c.connects("c")
	c.pass(1)
	c.are("c=1")
}

// Two nodes that come and go in turns do not take the part from each other.
func TestFlappingNodesDoNotTakeTurns(t *testing.T) {
	c := newCluster(t, "a", "b")
	c.pass(5)
	for i := range 40 {
		c.ready("a", i%2 == 0)
		c.ready("b", i%2 == 1)
		c.pass(15)
		c.connects("a", "b")
	}
	if len(c.moves) > 2 {
		t.Errorf("in ten minutes the gateways were %q", c.moves)
	}
}

// One node that comes and goes loses the part once.
func TestAFlappingNodeLosesThePartOnce(t *testing.T) {
	c := newCluster(t, "a", "b")
	c.pass(5)
	for i := range 40 {
		c.ready("a", i%2 == 0)
		c.pass(12)
		c.connects("a", "b")
	}
	c.are("b=1")
	if len(c.moves) > 3 {
		t.Errorf("in ten minutes the gateways were %q", c.moves)
	}
}

func TestLabelledGatewaysStay(t *testing.T) {
	c := newCluster(t, "a", "b", "c")
	for _, name := range []string{"a", "b"} {
		c.nodes[name].Labels = map[string]string{v1alpha1.LabelGateway: "true"}
	}
	c.pass(5)
	c.ready("a", false)
	c.cordon("b", true)
	c.silent("b", true)
	c.pass(300)
	c.are("a=0 b=1")
}

func TestCondition(t *testing.T) {
	sixteen, slots := "x+gateway+ready", ""
	for i := range v1alpha1.MaxSlot + 1 {
		sixteen += fmt.Sprintf(" n%02d+gateway+ready", i)
		slots += fmt.Sprintf(" n%02d=%d", i, i)
	}
	for _, tt := range []struct{ name, nodes, have, silent, mute, want string }{
		{"well", "a+ready", "a=0", "", "", "True Ready 1 of 1 gateways are well"},
		{"none", "a+ready", "", "", "", "False NoGateway the cluster has no gateway"},
		{"labelled", "a+gateway b+gateway+ready", "a=0 b=1", "", "",
			"False GatewaysNotReady 1 of 2 gateways are well, these are not: a (the node is not ready); they are not replaced"},
		{"labelled and silent", "a+gateway+ready b+gateway+ready", "a=0 b=1", "b", "",
			"False GatewaysNotReady 1 of 2 gateways are well, these are not: b (its agent is silent)"},
		{"labelled and never heard of", "a+gateway+ready b+gateway+ready", "a=0 b=1", "", "b",
			"False GatewaysNotReady 1 of 2 gateways are well, these are not: b (its agent has never reported: see the pods of " +
				"sealane-system on the node)"},
		{"labelled without address", "a+gateway+ready b+gateway+ready+unaddressed", "a=0 b=1", "", "",
			"False GatewaysNotReady 1 of 2 gateways are well, these are not: b (the node has no InternalIP)"},
		{"labelled and cordoned", "a+gateway+ready+cordoned", "a=0", "", "", "True Ready 1 of 1 gateways are well"},
		{"picked", "a b", "a=0", "", "",
			"False GatewaysNotReady no gateway is well: a (the node is not ready); another node"},
		{"moving", "a b+ready", "a=0 b=1", "", "", "True Ready 1 of 2 gateways are well, and the rest is being replaced"},
		{"a node that is gone", "b+ready", "a=0 b=1", "", "", "True Ready 1 of 1 gateways are well"},
		{"labels of other values", "a+gateway+ready b+gateway=True+ready c+gateway=+ready d+gateway=false+ready", "a=0",
			"", "",
			`False GatewayLabelIgnored 1 of 1 gateways are well; labelled and no gateways: ` +
				`b (sealane.io/gateway is "True", and not "true"), c (sealane.io/gateway is "", and not "true")`},
		{"a label where no agent runs", "a+ready b+gateway+windows+ready", "a=0", "", "",
			"False GatewayLabelIgnored 1 of 1 gateways are well; labelled and no gateways: b (it does not run Linux)"},
		{"one too many", sixteen, slots, "", "", "False GatewayLabelIgnored 16 of 16 gateways are well; labelled and no " +
			"gateways: x (a cluster has 16 gateways at most: take the label from one to make room)"},
		{"not well, and a label of another value", "a b+gateway=yes", "a=0", "", "",
			"False GatewaysNotReady no gateway is well: a (the node is not ready); another node takes its place as soon as " +
				`one has been ready for a minute; labelled and no gateways: b (sealane.io/gateway is "yes", and not "true")`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			gateways := have(tt.have)
			for i := range gateways {
				s := &gateways[i].Status
				if gateways[i].Name != tt.mute {
					s.ReportedAt = ptr.To(metav1.NewTime(noon))
				}
				if gateways[i].Name == tt.silent {
					s.SilentSince = ptr.To(metav1.NewTime(noon))
				}
			}
			c, _ := Condition(nodes(tt.nodes), gateways, noon)
			if got := fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message); !strings.HasPrefix(got, tt.want) ||
				tt.want == "" || c.Type != v1alpha1.PeeringGatewaysReady {
				t.Errorf("%s %s, want %s", c.Type, got, tt.want)
			}
		})
	}
}

// TestConditionOfAGatewayThatIsNew: its agent has a minute for its first report.
func TestConditionOfAGatewayThatIsNew(t *testing.T) {
	gateways := have("a=0")
	gateways[0].CreationTimestamp = metav1.NewTime(noon)
	for after, want := range map[time.Duration]metav1.ConditionStatus{
		0: metav1.ConditionTrue, 59 * time.Second: metav1.ConditionTrue, time.Minute: metav1.ConditionFalse,
	} {
		c, again := Condition(nodes("a+gateway+ready"), gateways, noon.Add(after))
		if c.Status != want || again != time.Minute-after {
			t.Errorf("after %s: %s, again after %s, want %s", after, c.Status, again, want)
		}
	}
}
