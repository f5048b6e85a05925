// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// sixTwin is a member that overlaps c1 in IPv6 alone.
func sixTwin(n int) Member {
	m := known(n)
	networks := &m.Report.Status.Networks
	networks.PodCIDRs = append(slices.Clone(networks.PodCIDRs), "fd07::/48")
	networks.ServiceCIDRs = append(slices.Clone(networks.ServiceCIDRs), "fd77::/112")
	return m
}

// knowsIPv6 renders what a member is told of others' blocks of IPv6.
func (w *walk) knowsIPv6(name string) string {
	var out []string
	for _, r := range w.member(name).Sent.RemoteClusters {
		if r.GlobalIPv6CIDR != "" {
			out = append(out, r.Name+":"+r.GlobalIPv6CIDR)
		}
	}
	return strings.Join(out, " ")
}

// ipv6Of is what a block of /16 has of the default pool.
func ipv6Of(block string) string {
	b := netip.MustParsePrefix(block).Addr().As4()
	return fmt.Sprintf("fd5e:a1a4:e242:%x::/64", int(b[0])<<8|int(b[1]))
}

// TestTwinsOfIPv6: two clusters that overlap in IPv6, whether or not in IPv4 too, know each other by blocks of both.
func TestTwinsOfIPv6(t *testing.T) {
	both := sixTwin(2)
	both.Report.Status.Networks = sixTwin(1).Report.Status.Networks
	only1, only2 := sixTwin(1), sixTwin(2)
	for _, m := range []*Member{&only1, &only2} {
		n := &m.Report.Status.Networks
		n.PodCIDRs, n.ServiceCIDRs = []string{"fd07::/48"}, []string{"fd77::/112"}
	}
	for name, pair := range map[string][2]Member{
		"IPv6 of dual-stack clusters": {sixTwin(1), sixTwin(2)}, "both families": {sixTwin(1), both},
		"of IPv6 alone": {only1, only2}, "one of IPv6 alone": {sixTwin(1), only2}, "IPv4 alone": {known(1), twin(2)},
	} {
		t.Run(name, func(t *testing.T) {
			w := auto(newWalk(pair[0], known(3)))
			w.settle(t)
			w.in.Members = append(w.in.Members, pair[1])
			w.expect(t, "nobody is told of a block that is not recorded", w.step(), "c2")
			w.settle(t)
			w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c3=True/Accepted c2=True/Accepted")
			b1, b2 := w.block("c1"), w.block("c2")
			w.expect(t, "c1 knows", w.knowsIPv6("c1"), "c2:"+ipv6Of(b2))
			w.expect(t, "c2 knows", w.knowsIPv6("c2"), "c1:"+ipv6Of(b1))
			w.expect(t, "c3 knows", w.knowsIPv6("c3"), "c2:"+ipv6Of(b2))
			w.expect(t, "its own", w.member("c2").Sent.GlobalIPv6CIDR, ipv6Of(b2))
			w.expect(t, "recorded", w.member("c1").Record.Status.GlobalIPv6CIDR, ipv6Of(b1))
			w.expect(t, "problems", w.complaints(), "")

			w.in.Set.Spec.Globalnet.IPv6CIDR = "fd11:2233:4455::/48"
			w.settle(t)
			w.expect(t, "another pool changes nothing", w.knowsIPv6("c2"), "c1:"+ipv6Of(b1))
			four := twin(4)
			four.Report.Status.Networks = pair[0].Report.Status.Networks
			w.join(t, four)
			if got := w.member("c4").Sent.GlobalIPv6CIDR; !strings.HasPrefix(got, "fd11:2233:4455:") {
				t.Errorf("a newcomer has %q", got)
			}
		})
	}
}

// TestIPv6OfEarlierBlocks: a member whose block is from before it had anything of IPv6 gets that, and its connections
// go on meanwhile.
func TestIPv6OfEarlierBlocks(t *testing.T) {
	w := auto(newWalk(known(1), twin(2)))
	w.settle(t)
	for _, name := range []string{"c1", "c2"} {
		m := w.member(name)
		m.Record.Status.GlobalIPv6CIDR, m.Sent.GlobalIPv6CIDR = "", ""
		for i := range m.Sent.RemoteClusters {
			m.Sent.RemoteClusters[i].GlobalIPv6CIDR = ""
		}
	}
	b1, b2 := w.block("c1"), w.block("c2")
	for range 3 {
		w.step()
		w.expect(t, "c1 knows", w.knows("c1"), "c2:"+b2+"*")
		w.expect(t, "c2 knows", w.knows("c2"), "c1:"+b1+"*")
	}
	w.settle(t)
	w.expect(t, "c1 knows", w.knowsIPv6("c1"), "c2:"+ipv6Of(b2))
	w.expect(t, "its own", w.member("c1").Sent.GlobalIPv6CIDR, ipv6Of(b1))
}

// TestIPv6PoolThatIsUsed: no block is given whose IPv6 a cluster has at home, and a cluster whose networks overlap a
// block's IPv6 is refused.
func TestIPv6PoolThatIsUsed(t *testing.T) {
	home := sixTwin(3)
	home.Report.Status.Networks.PodCIDRs[1] = "fd5e:a1a4:e242::/48"
	w := auto(newWalk(known(1), home))
	w.settle(t)
	w.join(t, twin(2))
	w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c3=True/Accepted c2=False/GlobalPoolExhausted")

	w = auto(newWalk(known(1), twin(2)))
	w.settle(t)
	late := sixTwin(4)
	late.Report.Status.Networks.PodCIDRs[1] = ipv6Of(w.block("c2"))
	w.join(t, late)
	w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=True/Accepted c4=False/CIDROverlap")
}
