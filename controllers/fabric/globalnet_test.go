// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/ipam"
)

// twin is a member like c1, with its pods and services, and with nodes and keys of its own.
func twin(n int) Member {
	m := known(n)
	m.Report.Status.Networks = known(1).Report.Status.Networks
	return m
}

func auto(w *walk) *walk {
	w.in.Set.Spec.Globalnet = v1alpha1.GlobalnetSpec{Mode: v1alpha1.GlobalnetAuto, CIDRs: []string{"242.0.0.0/8"},
		BlockPrefixLength: 16}
	return w
}

// knows renders what a member is told: by which networks it reaches each other, "*" where gateways translate.
func (w *walk) knows(name string) string {
	var out []string
	if sent := w.member(name).Sent; sent != nil {
		for _, r := range sent.RemoteClusters {
			text := r.Name + ":" + strings.Join(r.Networks.PodCIDRs, "+") + r.GlobalCIDR
			if r.Translated {
				text += "*"
			}
			out = append(out, text)
		}
	}
	return strings.Join(out, " ")
}

func (w *walk) block(name string) string { return w.member(name).Record.Status.GlobalCIDR }

// settle decides until nothing is written any more.
func (w *walk) settle(t testing.TB) {
	t.Helper()
	for range 10 {
		if w.step() == "" {
			return
		}
	}
	t.Fatal("the broker writes again and again")
}

// TestTwinsAreBothAccepted: of two clusters with the same networks the second gets a block and is known by it to all;
// the first is known by a block to the second alone.
func TestTwinsAreBothAccepted(t *testing.T) {
	w := auto(newWalk(known(1), known(3)))
	w.settle(t)
	w.expect(t, "no block without an overlap", w.block("c1")+w.block("c3"), "")
	w.in.Members = append(w.in.Members, twin(2))

	w.expect(t, "nobody is told of a block that is not recorded", w.step(), "c2")
	w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c3=True/Accepted c2=False/GlobalCIDRRecorded")
	b1, b2 := w.block("c1"), w.block("c2")
	if b1 == "" || b2 == "" || b1 == b2 {
		t.Fatalf("blocks %q and %q", b1, b2)
	}
	w.settle(t)
	w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c3=True/Accepted c2=True/Accepted")
	w.expect(t, "c1 knows", w.knows("c1"), "c2:"+b2+"* c3:10.3.0.0/16")
	w.expect(t, "c2 knows", w.knows("c2"), "c1:"+b1+"* c3:10.3.0.0/16*")
	w.expect(t, "c3 knows", w.knows("c3"), "c1:10.1.0.0/16 c2:"+b2)
	w.expect(t, "c1's own", w.member("c1").Sent.GlobalCIDR, b1)
	w.expect(t, "c3's own", w.member("c3").Sent.GlobalCIDR, "")
	w.expect(t, "scopes", string(w.member("c1").Record.Status.GlobalScope+" "+w.member("c2").Record.Status.GlobalScope),
		"Overlapping All")
	w.expect(t, "problems", w.complaints(), "")

	w.in.Members = append(w.in.Members, twin(4))
	w.settle(t)
	w.expect(t, "a third twin knows", w.knows("c4"), "c1:"+b1+"* c2:"+b2+"* c3:10.3.0.0/16*")
}

func TestGlobalnetOn(t *testing.T) {
	w := newWalk(known(1), known(2))
	w.in.Set.Spec.Globalnet.Mode = v1alpha1.GlobalnetOn
	w.in.Set.Spec.Clusters = []v1alpha1.ClusterOverride{
		{Name: "c1", Globalnet: v1alpha1.GlobalnetOverride{CIDR: "120.1.0.0/24"}},
		{Name: "c2", Globalnet: v1alpha1.GlobalnetOverride{CIDR: "120.2.0.0/24"}},
	}
	w.settle(t)
	w.expect(t, "c1 knows", w.knows("c1"), "c2:120.2.0.0/24*")
	w.expect(t, "c2 knows", w.knows("c2"), "c1:120.1.0.0/24*")
	w.expect(t, "problems", w.complaints(), "")
}

func TestGlobalnetOffRefusesTwins(t *testing.T) {
	w := newWalk(known(1))
	w.settle(t)
	w.in.Members = append(w.in.Members, twin(2))
	w.settle(t)
	w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=False/CIDROverlap")
	for _, part := range []string{"c2 is refused because of c1", "10.1.0.0/16", "globalnet"} {
		if !strings.Contains(w.complaints(), part) {
			t.Errorf("%q does not say %q", w.complaints(), part)
		}
	}
	// c1 will not be known by a block, so no mode of c2 helps.
	w.in.Set.Spec.Clusters = []v1alpha1.ClusterOverride{{Name: "c2",
		Globalnet: v1alpha1.GlobalnetOverride{Mode: v1alpha1.GlobalnetOn}}}
	w.settle(t)
	w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=False/CIDROverlap")
	if want := "globalnet is Off for c1"; !strings.Contains(w.complaints(), want) {
		t.Errorf("%q does not say %q", w.complaints(), want)
	}
	w.expect(t, "no block is taken for nothing", w.block("c1")+w.block("c2"), "")
	// With a mode for both, as whoever has installed without one is told to state, nobody has to leave first.
	w.in.Set.Spec.Clusters, w.in.Set.Spec.Globalnet.Mode = nil, v1alpha1.GlobalnetAuto
	w.settle(t)
	w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=True/Accepted")
	w.expect(t, "what they know", w.knows("c1")+" "+w.knows("c2"), "c2:"+w.block("c2")+"* c1:"+w.block("c1")+"*")
	w.expect(t, "problems", w.complaints(), "")
}

// TestModeOfALiveMember: a mistake in a field that all depend on must not end every connection at once.
func TestModeOfALiveMember(t *testing.T) {
	w := newWalk(known(1), known(2))
	w.settle(t)
	was := w.knows("c1") + w.knows("c2")
	w.in.Set.Spec.Globalnet.Mode = v1alpha1.GlobalnetOn
	w.settle(t)
	w.expect(t, "what they know", w.knows("c1")+w.knows("c2"), was)
	if want := "c1 keeps its own networks until it leaves and joins: globalnet On is stated for it"; !strings.Contains(
		w.complaints(), want) {
		t.Errorf("%q does not say %q", w.complaints(), want)
	}
	w.leave(t, "c2")
	w.join(t, known(2))
	b2 := w.block("c2")
	w.expect(t, "c1 knows", w.knows("c1"), "c2:"+b2)
	w.expect(t, "c2 knows", w.knows("c2"), "c1:10.1.0.0/16*")

	w.in.Set.Spec.Globalnet.Mode = v1alpha1.GlobalnetOff
	w.settle(t)
	w.expect(t, "c1 knows", w.knows("c1"), "c2:"+b2)
	if want := "c2 keeps the global CIDR " + b2 + " until it leaves and joins: globalnet Off"; !strings.Contains(
		w.complaints(), want) {
		t.Errorf("%q does not say %q", w.complaints(), want)
	}
}

func (w *walk) leave(t testing.TB, name string) {
	t.Helper()
	w.member(name).Record.Spec.Phase = v1alpha1.MemberLeaving
	w.settle(t)
	w.in.Members = slices.DeleteFunc(w.in.Members, func(m Member) bool { return m.Record.Name == name })
	w.settle(t)
}

func (w *walk) join(t testing.TB, m Member) {
	t.Helper()
	w.in.Members = append(w.in.Members, m)
	w.settle(t)
}

// TestBlocksOutliveMembership: who comes back has the addresses it had, and for seven days nobody else has them, nor
// before all members have answered that they do not route them.
func TestBlocksOutliveMembership(t *testing.T) {
	w := auto(newWalk(known(1), twin(2)))
	w.in.Set.Spec.Globalnet.CIDRs = []string{"242.0.0.0/15"} // two blocks
	w.settle(t)
	b2 := w.block("c2")
	w.leave(t, "c2")
	w.expect(t, "c1 knows", w.knows("c1"), "")
	w.join(t, twin(4))
	w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c4=False/GlobalPoolExhausted")
	if want := "kept for clusters that left (1)"; !strings.Contains(w.complaints(), want) {
		t.Errorf("%q does not say %q", w.complaints(), want)
	}
	w.join(t, twin(2))
	w.expect(t, "the block of c2", w.block("c2"), b2)

	w.leave(t, "c2")
	heard := w.silence("c1")
	w.in.Now = w.in.Now.Add(ipam.Retention + time.Minute)
	w.settle(t)
	w.expect(t, "c1 has not answered", w.block("c4"), "")
	heard()
	w.settle(t)
	w.settle(t)
	w.expect(t, "the block of c4", w.block("c4"), b2)
}

func TestGlobalCIDRsThatCannotBe(t *testing.T) {
	for stated, want := range map[string]string{
		"10.3.0.0/16":  "overlaps 10.3.0.0/16, pods of cluster c3",
		"120.1.0.0/16": "overlaps the block 120.1.0.0/24 of cluster c1",
		"10.1.0.0/20":  "overlaps 10.1.0.0/16, pods of cluster c",
	} {
		w := auto(newWalk(known(1), known(3)))
		w.in.Set.Spec.Clusters = []v1alpha1.ClusterOverride{
			{Name: "c1", Globalnet: v1alpha1.GlobalnetOverride{Mode: v1alpha1.GlobalnetOn, CIDR: "120.1.0.0/24"}},
			{Name: "c2", Globalnet: v1alpha1.GlobalnetOverride{Mode: v1alpha1.GlobalnetOn, CIDR: stated}},
		}
		w.settle(t)
		w.join(t, twin(2))
		if !strings.Contains(w.complaints(), want) || !strings.Contains(w.complaints(), "c2") {
			t.Errorf("%s: %q does not say %q", stated, w.complaints(), want)
		}
		w.expect(t, stated, w.accepted(), "c1=True/Accepted c3=True/Accepted c2=False/GlobalCIDRConflict")
	}
	t.Run("a network over the block of another", func(t *testing.T) {
		w := auto(newWalk(known(1), twin(2)))
		w.settle(t)
		bad := known(5)
		bad.Report.Status.Networks.ServiceCIDRs = []string{"120.7.0.0/16"}
		w.in.Set.Spec.AllowedCIDRs = []string{"0.0.0.0/0"}
		w.in.Set.Spec.Clusters = []v1alpha1.ClusterOverride{{Name: "c6", Globalnet: v1alpha1.GlobalnetOverride{
			Mode: v1alpha1.GlobalnetOn, CIDR: "120.7.1.0/24"}}}
		w.join(t, known(6))
		w.join(t, bad)
		if c := w.accepted(); !strings.Contains(c, "c5=False/CIDROverlap") || !strings.Contains(c, "c6=True") {
			t.Errorf("%s: %s", c, w.complaints())
		}
	})
}

// TestGlobalnetAtRandom lets clusters whose networks overlap in any way come, grow, change their modes and leave. What
// a member is told never overlaps its own networks or each other, and two always agree on how they know each other.
func TestGlobalnetAtRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 40 {
		w := auto(newWalk())
		for range 25 {
			w.in.Set.Spec.Globalnet.Mode = []v1alpha1.GlobalnetMode{v1alpha1.GlobalnetAuto, v1alpha1.GlobalnetAuto,
				v1alpha1.GlobalnetOn, v1alpha1.GlobalnetOff}[r.IntN(4)]
			name := fmt.Sprintf("c%d", 1+r.IntN(7))
			m := w.member(name)
			switch {
			case m == nil:
				w.in.Members = append(w.in.Members, atRandom(r, known(int(name[1]-'0'))))
			case r.IntN(3) == 0:
				w.leave(t, name)
			default:
				*m = atRandom(r, *m)
			}
			before := map[string]string{}
			for _, m := range w.in.Members {
				before[m.Record.Name] = m.Record.Status.GlobalCIDR
			}
			w.step()
			w.agree(t, before)
			w.settle(t)
			w.agree(t, nil)
		}
	}
}

func atRandom(r *rand.Rand, m Member) Member {
	pick := func(second int) []string {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(second), byte(r.IntN(4) * 64), 0}), 16+r.IntN(3)).Masked()
		return []string{p.String()}
	}
	m.Report.Status.Networks = v1alpha1.Networks{PodCIDRs: pick(r.IntN(3)), ServiceCIDRs: pick(100 + r.IntN(3))}
	return m
}

// agree checks what all members are told. Blocks are only told of that were recorded before, if those are given.
func (w *walk) agree(t *testing.T, recorded map[string]string) {
	t.Helper()
	for _, m := range w.in.Members {
		if m.Sent == nil {
			continue
		}
		if b := m.Sent.GlobalCIDR; recorded != nil && b != "" && recorded[m.Record.Name] != b {
			t.Fatalf("%s is told of its block %s before it is recorded", m.Record.Name, b)
		}
		seen := slices.Concat(m.Sent.Networks.PodCIDRs, m.Sent.Networks.ServiceCIDRs)
		for _, remote := range m.Sent.RemoteClusters {
			theirs := slices.Concat(remote.Networks.PodCIDRs, remote.Networks.ServiceCIDRs)
			if remote.GlobalCIDR != "" {
				theirs = append(theirs, remote.GlobalCIDR)
			}
			for _, p := range theirs {
				for _, q := range seen {
					if netip.MustParsePrefix(p).Overlaps(netip.MustParsePrefix(q)) {
						t.Fatalf("%s is told of %s of %s beside %s", m.Record.Name, p, remote.Name, q)
					}
				}
			}
			seen = append(seen, theirs...)
			w.mirrored(t, m, remote)
		}
	}
}

func (w *walk) mirrored(t *testing.T, m Member, remote v1alpha1.RemoteCluster) {
	t.Helper()
	other := w.member(remote.Name)
	if other == nil || other.Sent == nil {
		t.Fatalf("%s is told of %s, which is told nothing", m.Record.Name, remote.Name)
	}
	i := slices.IndexFunc(other.Sent.RemoteClusters,
		func(r v1alpha1.RemoteCluster) bool { return r.Name == m.Record.Name })
	if i < 0 {
		t.Fatalf("%s is told of %s, and not the other way round", m.Record.Name, remote.Name)
	}
	back := other.Sent.RemoteClusters[i]
	if remote.Translated != (back.GlobalCIDR != "") || back.Translated != (remote.GlobalCIDR != "") ||
		back.GlobalCIDR != "" && back.GlobalCIDR != m.Sent.GlobalCIDR {
		t.Fatalf("%s is told %+v, %s is told %+v, of block %s", m.Record.Name, remote, other.Record.Name, back,
			m.Sent.GlobalCIDR)
	}
}

// TestTranslatedPairIsNoMesh: where gateways translate, nodes do not connect, and who chose a mesh is told so.
func TestTranslatedPairIsNoMesh(t *testing.T) {
	w := connected(2, 2)
	w.in.Set.Spec.Globalnet.Mode = v1alpha1.GlobalnetOn
	w.in.Set.Spec.Topology.Pairs = []v1alpha1.TopologyPair{pairOf("c1", "c2")}
	w.settle(t)
	w.expect(t, "c1 says", w.ways("c1"), "c2:Mesh:GlobalAddresses")
	w.expect(t, "c1 is told of", w.nodesTold("c1"), "c2:0")
	if topology := w.member("c1").Sent.RemoteClusters[0].Topology; topology != "" {
		t.Errorf("c1 is asked for nodes of a %s", topology)
	}
	if !strings.Contains(w.complaints(), "gateways translate") || !w.ready() {
		t.Errorf("problems %q; conditions %v", w.complaints(), w.in.Set.Status.Conditions)
	}
}
