// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// claiming is cluster 2 with other pod networks.
func claiming(pods ...string) Member {
	m := known(2)
	m.Report.Status.Networks.PodCIDRs = pods
	return m
}

func (w *walk) message(name string) string {
	c := meta.FindStatusCondition(w.member(name).Record.Status.Conditions, v1alpha1.MemberAccepted)
	if c == nil {
		return ""
	}
	return c.Message
}

// problems renders the ClusterSet's problems as "cluster/reason".
func (w *walk) problems() string {
	var out []string
	for _, p := range w.d.Set.Problems {
		out = append(out, p.Cluster+"/"+p.Reason)
	}
	return strings.Join(out, " ")
}

func TestForeignAddressSpaceIsRefused(t *testing.T) {
	for _, c := range []struct{ what, claim, reason string }{
		{"a public /8", "8.0.0.0/8", v1alpha1.ReasonNotAllowed},
		{"a git host's network", "140.82.112.0/20", v1alpha1.ReasonNotAllowed},
		{"an API server's public address", "203.0.113.10/32", v1alpha1.ReasonNotAllowed},
		{"a router's public address", "203.0.113.1/32", v1alpha1.ReasonNotAllowed},
		{"a public IPv6 network", "2001:db8::/32", v1alpha1.ReasonNotAllowed},
		{"half of what is allowed and half of what is not", "172.0.0.0/11", v1alpha1.ReasonNotAllowed},
		{"a metadata service", "169.254.169.254/32", v1alpha1.ReasonInvalidNetworks},
		{"the metadata services of a cloud in IPv6", "fd00:ec2::254/128", v1alpha1.ReasonInvalidNetworks},
		{"another member's node", "192.168.1.1/32", v1alpha1.ReasonCIDROverlap},
		{"another member's nodes' network", "192.168.1.0/24", v1alpha1.ReasonCIDROverlap},
		{"another member's pods", "10.1.7.0/24", v1alpha1.ReasonCIDROverlap},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWalk(known(1), claiming("10.2.0.0/16", c.claim))
			w.step()
			w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=False/"+c.reason)
			w.expect(t, "c1 is told of", w.remotes("c1"), "")
			want := []string{c.claim}
			if c.reason == v1alpha1.ReasonNotAllowed {
				want = append(want, "spec.allowedCIDRs of ClusterSet blue", "10.0.0.0/8, 172.16.0.0/12", "state it there")
			}
			for _, text := range want {
				if !strings.Contains(w.message("c2"), text) {
					t.Errorf("the condition does not name %q: %s", text, w.message("c2"))
				}
			}
			if !strings.Contains(w.problems(), "c2/"+c.reason) {
				t.Errorf("problems %s", w.problems())
			}
		})
	}
}

func TestNodeAddressesAreHosts(t *testing.T) {
	squatter := known(2)
	squatter.Report.Status.NodeCIDRs = []string{"10.128.0.0/9"}
	w := newWalk(known(1), squatter,
		func() Member { m := known(3); m.Report.Status.Networks.PodCIDRs = []string{"10.200.0.0/16"}; return m }())
	w.step()
	w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=False/InvalidNetworks c3=True/Accepted")
}

func TestAllowedNetworks(t *testing.T) {
	override := func(w *walk, pods ...string) {
		w.in.Set.Spec.Clusters = []v1alpha1.ClusterOverride{{Name: "c2", Networks: v1alpha1.Networks{PodCIDRs: pods}}}
	}
	t.Run("more is allowed to all", func(t *testing.T) {
		w := newWalk(known(1), claiming("8.0.0.0/8"))
		w.in.Set.Spec.AllowedCIDRs = []string{"8.0.0.0/7", "10.0.0.0/9", "10.128.0.0/9"}
		w.step()
		w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=True/Accepted")
	})
	t.Run("adjacent networks allow what spans them", func(t *testing.T) {
		w := newWalk(claiming("172.16.0.0/15"))
		w.in.Set.Spec.AllowedCIDRs = []string{"10.0.0.0/8", "172.16.0.0/16", "172.17.0.0/16"}
		w.step()
		w.expect(t, "accepted", w.accepted(), "c2=True/Accepted")
	})
	t.Run("more is allowed to one cluster", func(t *testing.T) {
		third := known(3)
		third.Report.Status.Networks.PodCIDRs = []string{"8.1.0.0/16"}
		w := newWalk(third, claiming("8.0.0.0/16"))
		override(w, "8.0.0.0/15")
		w.step()
		w.expect(t, "accepted", w.accepted(), "c3=False/NotAllowed c2=True/Accepted")
	})
	t.Run("what is stated for a cluster is all that it may claim", func(t *testing.T) {
		w := newWalk(known(1), claiming("10.2.0.0/16", "10.9.0.0/16"))
		override(w, "10.2.0.0/16")
		w.step()
		w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=False/NotAllowed")
		for _, text := range []string{"10.9.0.0/16", "spec.clusters of ClusterSet blue states for it (10.2.0.0/16)"} {
			if !strings.Contains(w.message("c2"), text) {
				t.Errorf("the condition does not name %q: %s", text, w.message("c2"))
			}
		}
		w.member("c2").Report.Status.Networks.PodCIDRs = []string{"10.2.0.0/16"}
		w.step()
		w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=True/Accepted")
	})
	t.Run("nothing is allowed by a list that cannot be parsed, and nobody is cut off by it", func(t *testing.T) {
		w := newWalk(known(1))
		w.step()
		w.in.Set.Spec.AllowedCIDRs = []string{"10.0.0.0"}
		w.in.Members = append(w.in.Members, known(2))
		w.step()
		w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=False/NotAllowed")
	})
}

func TestNewNetworksAfterTheFirstAcceptance(t *testing.T) {
	for _, c := range []struct{ what, claim, want, told string }{
		{"free and allowed", "10.20.0.0/16", "c1=True/Accepted c2=True/Accepted", "c2:10.2.0.0/16+10.20.0.0/16:1"},
		{"not allowed", "8.0.0.0/8", "c1=True/Accepted c2=True/KeptLastGood", "c2:10.2.0.0/16:1"},
		{"not free", "10.1.0.0/24", "c1=True/Accepted c2=True/KeptLastGood", "c2:10.2.0.0/16:1"},
		{"part of what it has", "10.2.7.0/24", "c1=True/Accepted c2=True/Accepted", "c2:10.2.0.0/16+10.2.7.0/24:1"},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWalk(known(1), known(2))
			w.step()
			w.member("c2").Report.Status.Networks.PodCIDRs = []string{"10.2.0.0/16", c.claim}
			before := w.member("c2").Record.Status
			w.step()
			w.expect(t, "accepted", w.accepted(), c.want)
			w.expect(t, "c1 is told of", w.remotes("c1"), c.told)
			event := ""
			if strings.Contains(c.told, c.claim) {
				event = fmt.Sprintf("networks taken: %s; given up: none", c.claim)
			} else if !strings.Contains(w.message("c2"), c.claim) {
				t.Errorf("the condition does not name %s: %s", c.claim, w.message("c2"))
			}
			w.expect(t, "event", networksChanged(before, w.member("c2").Record.Status), event)
		})
	}
	w := newWalk(known(1))
	w.step()
	w.expect(t, "event of the first acceptance", networksChanged(v1alpha1.MemberStatus{}, w.member("c1").Record.Status),
		"")
}

// TestANarrowerListCutsNobodyOff: a typing error in a list that all depend on must not disconnect the fleet.
func TestANarrowerListCutsNobodyOff(t *testing.T) {
	w := newWalk(known(1), known(2))
	w.step()
	w.in.Set.Spec.AllowedCIDRs = []string{"10.1.0.0/16", "10.101.0.0/16"}
	w.in.Members = append(w.in.Members, known(3))
	w.step()
	w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=True/Accepted c3=False/NotAllowed")
	w.expect(t, "c1 is told of", w.remotes("c1"), "c2:10.2.0.0/16:1")
	w.expect(t, "problems", w.problems(), "c2/NotAllowed c3/NotAllowed")
	if !strings.Contains(w.message("c2"), "keeps what it may no longer claim") {
		t.Errorf("the condition of c2 says %q", w.message("c2"))
	}
	w.member("c2").Report = Report{}
	w.step()
	w.expect(t, "c2 is silent", w.problems(), "c2/NotAllowed c3/NotAllowed")
	w.in.Set.Spec.AllowedCIDRs = nil
	w.step()
	w.expect(t, "the list is put right", w.accepted(), "c1=True/Accepted c2=True/Accepted c3=True/Accepted")
	w.expect(t, "problems", w.problems(), "")
}
