// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
)

// translation is who has which addresses, for a while.
type translation struct {
	// second says that gw4 is a gateway of c1, beside gw1.
	second bool
	// backends of both clusters' services.
	backends []string
	// own are the numbers of the pods' own addresses in c1 and in c2, 120.x.0.n, by the pods' addresses.
	own map[string]map[string]int
	// all and selected are the pods of c1 that have a range of their namespace, number 5, or one of their own, 6 to 7.
	all, selected []string
	// exported says that c2 exports the host outside, and allowed that the ClusterSet lets it.
	exported, allowed bool
}

func (c translation) String() string {
	return fmt.Sprintf("second gateway %t, backends %v, own %v, namespace %v, selected %v, host exported %t, allowed %t",
		c.second, c.backends, c.own, c.all, c.selected, c.exported, c.allowed)
}

// shown are the first and the last address of each gateway's that servers in c2 may see of a pod of c1. They have the
// same numbers in both families.
func (c translation) shown(f family, pod string) (ranges [][2]netip.Addr) {
	block := f.block("c1")
	from, to := 1, globalnet.ClusterEgress(block)
	switch n, own := c.own["c1"][pod]; {
	case slices.Contains(c.selected, pod):
		from, to = 6, 7
	case own && !c.second:
		a := globalnet.At(block, n)
		return [][2]netip.Addr{{a, a}}
	case slices.Contains(c.all, pod):
		from, to = 5, 5
	}
	slots := 1
	if c.second {
		slots = 2
	}
	for slot := range slots {
		first, last := globalnet.Egress(block, slot, from, to)
		ranges = append(ranges, [2]netip.Addr{first, last})
	}
	return ranges
}

// numbered is an address of a cluster's block.
func numbered(cluster string, n int) netip.Addr {
	return globalnet.At(netip.MustParsePrefix(blocks[cluster]), n)
}

// changed is the translation with one thing changed, at random.
func (c translation) changed(r *rand.Rand) translation {
	some := func(of ...string) []string {
		return slices.DeleteFunc(of, func(string) bool { return r.IntN(2) == 0 })
	}
	pods := []string{"10.7.0.10", "10.7.1.10"}
	c.own = maps.Clone(c.own)
	switch r.IntN(7) {
	case 0:
		c.second = !c.second
	case 1:
		c.backends = some(pods...)
	case 2:
		cluster, numbers := []string{"c1", "c2"}[r.IntN(2)], r.Perm(3)
		c.own[cluster] = map[string]int{}
		for i, pod := range some(pods...) {
			c.own[cluster][pod] = ownNumbers[numbers[i]]
		}
	case 3:
		c.all = some("10.7.0.10", "10.7.1.10", "10.7.2.10")
	case 4:
		c.exported = !c.exported
	case 5:
		c.allowed = !c.allowed
	default:
		c.selected = some("10.7.0.10", "10.7.1.10", "10.7.2.10")
	}
	return c
}

// ownNumbers are those of pods' own addresses, and hostNumber that of the host outside.
var ownNumbers = []int{20, 21, 22}

const hostNumber = 30

// restPlaces are where the walk comes to rest.
func restPlaces() []translation {
	both := []string{"10.7.0.10", "10.7.1.10"}
	return []translation{
		{backends: both, own: map[string]map[string]int{"c1": {"10.7.1.10": 20}, "c2": {"10.7.0.10": 20, "10.7.1.10": 21}},
			all: []string{"10.7.0.10"}, exported: true, allowed: true},
		{second: true, backends: both[1:], own: map[string]map[string]int{"c1": {"10.7.0.10": 21}},
			selected: []string{"10.7.1.10"}, exported: true},
	}
}

// become tells all machines.
func (n *twins) become(t *testing.T, c translation) {
	t.Helper()
	n.absent = map[*machine]bool{n.gw4: !c.second}
	n.pods = map[string][]v1alpha1.GlobalPod{}
	for cluster, own := range c.own {
		for _, pod := range slices.Sorted(maps.Keys(own)) {
			n.pods[cluster] = append(n.pods[cluster], v1alpha1.GlobalPod{Name: "db-" + pod, IP: pod, IPv6: sixOf(pod),
				GlobalIP: numbered(cluster, own[pod]).String()})
		}
	}
	if c.exported {
		n.pods["c2"] = append(n.pods["c2"], v1alpha1.GlobalPod{Name: n.outside.ip, IP: n.outside.ip,
			GlobalIP: numbered("c2", hostNumber).String()})
	}
	n.external = map[string][]string{}
	if c.allowed {
		n.external["c2"] = []string{"172.31.1.48/28"}
	}
	n.egress = map[string][]v1alpha1.GlobalAllocation{"c1": {egressOf("all", 5, 5, false, ofBothFamilies(c.all)...),
		egressOf("client", 6, 7, true, ofBothFamilies(c.selected)...)}}
	n.tellTwins(t, v1alpha1.MemberActive, c.backends)
}

// ofBothFamilies are all addresses of pods.
func ofBothFamilies(pods []string) []string {
	out := slices.Clone(pods)
	for _, pod := range pods {
		out = append(out, sixOf(pod))
	}
	return out
}

// translates waits until all who ask are known by the addresses of the model, and reach whom it says.
func (n *twins) translates(t *testing.T, c translation) {
	t.Helper()
	differ := ""
	defer func() {
		if t.Failed() {
			t.Log(differ)
		}
	}()
	eventually(t, 60*time.Second, "all are known as the model says", func() bool {
		differ = n.differs(t, c)
		return differ == ""
	})
}

// differs is the first difference to the model, "" for none.
func (n *twins) differs(t *testing.T, c translation) string {
	for _, f := range []family{ofIPv4, ofIPv6} {
		if text := cmp.Or(n.knows(t, f, c),
			n.reaches(t, f, c, n.worker1.pod, "c2", map[string]string{"10.7.0.10": "gw2", "10.7.1.10": "worker2"}),
			n.reaches(t, f, c, n.worker2.pod, "c1", map[string]string{"10.7.0.10": "gw1", "10.7.1.10": "worker1"})); text != "" {
			return text
		}
	}
	return n.reachesHost(t, c)
}

// nobodyThere says that who asks is told that nobody has the address.
func nobodyThere(err error) bool {
	return errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}

// knows asks the service of c2 from all pods of c1.
func (n *twins) knows(t *testing.T, f family, c translation) string {
	machines := map[string]*machine{"10.7.0.10": n.gw1, "10.7.1.10": n.worker1, "10.7.2.10": n.gw4}
	for _, pod := range slices.Sorted(maps.Keys(machines)) {
		server, client, err := ask(t, machines[pod].pod, f.tcp(), f.port(serviceOfTwin2, "80"))
		switch expected := c.shown(f, pod); {
		case len(c.backends) == 0:
			if !nobodyThere(err) {
				return fmt.Sprintf("%s: a service without backends: %q, %v", f, server, err)
			}
		case err != nil:
			return fmt.Sprintf("%s: the pod %s gets no answer: %v", f, pod, err)
		case !inRanges(client, expected):
			return fmt.Sprintf("%s: the pod %s is known by %s, expected one of %v", f, pod, client, expected)
		case !slices.Contains(c.backends, map[string]string{"gw2": "10.7.0.10", "worker2": "10.7.1.10"}[server]):
			return fmt.Sprintf("%s: %s answers, and is no backend", f, server)
		}
	}
	return ""
}

// inRanges says whether an address is in one of several ranges.
func inRanges(a netip.Addr, ranges [][2]netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r [2]netip.Addr) bool { return !a.Less(r[0]) && !r[1].Less(a) })
}

// reaches asks all that may be pods' own addresses of a cluster.
func (n *twins) reaches(t *testing.T, f family, c translation, from *exec.Cmd, cluster string,
	names map[string]string) string {
	for _, number := range ownNumbers {
		want := ""
		for pod, has := range c.own[cluster] {
			if has == number {
				want = names[pod]
			}
		}
		address := globalnet.At(f.block(cluster), number)
		server, _, err := ask(t, from, f.tcp(), netip.AddrPortFrom(address, 8080).String())
		if server != want || want == "" && !nobodyThere(err) {
			return fmt.Sprintf("%s of %s is answered by %q, expected %q: %v", address, cluster, server, want, err)
		}
	}
	return ""
}

// reachesHost asks the host outside, and has it ask the service of c1.
func (n *twins) reachesHost(t *testing.T, c translation) string {
	own := numbered("c2", hostNumber)
	server, client, err := ask(t, n.worker1.pod, "tcp4", netip.AddrPortFrom(own, 8080).String())
	switch reached := c.exported && c.allowed; {
	case reached && (server != n.outside.name || client.String() != n.gw2.ip):
		return fmt.Sprintf("the host outside: answered by %q, which sees %s: %v", server, client, err)
	case !reached && !nobodyThere(err):
		return fmt.Sprintf("the host outside is no host that c2 may export: answered by %q, %v", server, err)
	case !c.allowed || len(c.backends) == 0:
		return "" // what it sends is dropped, or nobody is there
	}
	server, client, err = ask(t, n.outside.holder, "tcp4", serviceOfTwin1+":80")
	first, last := globalnet.Egress(ofIPv4.block("c2"), 0, 1, globalnet.ClusterEgress(ofIPv4.block("c2")))
	if c.exported {
		first, last = own, own
	}
	switch {
	case err != nil || !slices.Contains(c.backends, map[string]string{"gw1": "10.7.0.10", "worker1": "10.7.1.10"}[server]):
		return fmt.Sprintf("the host outside asks, and %q answers: %v", server, err)
	case !c.second && !inRanges(client, [][2]netip.Addr{{first, last}}): // else servers may see a gateway of their own
		return fmt.Sprintf("the host outside is known by %s, expected %s to %s", client, first, last)
	}
	return ""
}

// wipe takes an agent and all that it has made away, as if it had never been.
func (m *machine) wipe(t *testing.T) {
	t.Helper()
	m.stop(t, syscall.SIGKILL)
	_ = os.Remove(m.path("status.json"))
	m.run(t, `for l in $(ip -o link | grep -o 'sl-[a-z0-9]*' | sort -u); do ip link del $l 2>/dev/null || true; done
		for f in -4 -6; do
			for p in 103 104 105; do while ip $f rule del pref $p 2>/dev/null; do :; done; done
			for t in $(seq 5100 5125); do ip $f route flush table $t 2>/dev/null || true; done
		done
		nft delete table ip sealane 2>/dev/null || true; nft delete table ip6 sealane 2>/dev/null || true
		for i in iptables-nft ip6tables-nft; do
			$i -S FORWARD | grep sealane | sed "s/^-A/$i -D/" | sh
		done`)
	if left := m.everything(t); left != "" {
		t.Fatalf("%s: not wiped:\n%s", m.name, left)
	}
}

// connects says whether a machine, if it is a gateway, is connected to all of the other cluster's.
func (n *twins) connects(m *machine) bool {
	wanted := 1
	switch {
	case m == n.gw4 && n.absent[m], m == n.worker1, m == n.worker2:
		return true
	case m == n.gw2 && !n.absent[n.gw4]:
		wanted = 2
	}
	var s v1alpha1.GatewayStatus
	return m.read("status.json", &s) == nil && len(s.Connections) == wanted &&
		!slices.ContainsFunc(s.Connections, func(c v1alpha1.Connection) bool {
			return c.Status != v1alpha1.ConnectionConnected
		})
}

// fresh is what agents that begin with clean nodes make of a translation, once nothing changes any more.
func (n *twins) fresh(t *testing.T, c translation) map[*machine]string {
	t.Helper()
	for _, m := range n.all() {
		m.wipe(t)
	}
	n.become(t, c)
	for _, m := range n.all() {
		m.start(t)
	}
	eventually(t, 60*time.Second, "every gateway connected to every other", func() bool {
		return !slices.ContainsFunc(n.all(), func(m *machine) bool { return !n.connects(m) })
	})
	n.translates(t, c)
	list := func() map[*machine]string {
		out := map[*machine]string{}
		for _, m := range n.all() {
			out[m] = m.everything(t)
		}
		return out
	}
	last, same := list(), 0
	eventually(t, 60*time.Second, "nothing changes any more", func() bool {
		now := list()
		if same++; !maps.Equal(now, last) {
			last, same = now, 0
		}
		return same > 0
	})
	return last
}

// TestTranslationsWalk: pods, exports, hosts outside, GlobalEgressIPs and gateways of twin clusters come and go, and
// agents die, in whatever order: everybody is known by the address that a small model says, of IPv4 and of IPv6, and
// reached by it. At rest the kernels are as agents make them that began with a clean node, and at the end nothing is
// left.
func TestTranslationsWalk(t *testing.T) {
	t.Parallel()
	n := newTwins(t, nil)
	n.gw4 = n.newMachine(t, "gw4", "c1", 6, "10.7.2", "fd07:0:0:2")
	n.outside = n.newHost(t, "vm", "172.31.1.50")
	n.outside.run(t, "ip route add "+blocks["c1"]+" via "+n.gw2.ip)
	const rest = 20 // steps between two rests
	places := restPlaces()
	places = places[:min(len(places), 1+*translations/rest)]
	n.become(t, places[0])
	n.gw4.startTwin(t)
	for _, m := range n.all() {
		m.serve(t)
		m.run(t, "echo 0 > /proc/sys/net/ipv4/icmp_ratelimit; echo 0 > /proc/sys/net/ipv6/icmp/ratelimit")
	}
	var made []map[*machine]string
	for _, c := range places {
		made = append(made, n.fresh(t, c))
	}
	random := rand.New(rand.NewPCG(*seed, 1))
	t.Logf("-seed %d -translations %d", *seed, *translations)
	c := places[len(places)-1]
	for step := 1; step <= *translations; step++ {
		if random.IntN(4) == 0 {
			m := n.all()[random.IntN(len(n.all()))]
			f := dying()[random.IntN(len(dying()))]
			t.Logf("step %d: %s: %s", step, m.name, f.name)
			f.do(t, m)
		} else {
			c = c.changed(random)
			t.Logf("step %d: %s", step, c)
			n.become(t, c)
		}
		if random.IntN(3) > 0 { // else the next comes on top of it
			n.translates(t, c)
		}
		if step%rest != 0 && step != *translations {
			continue
		}
		i := random.IntN(len(places))
		c = places[i]
		n.become(t, c)
		n.translates(t, c)
		n.asMade(t, made[i])
	}
	n.tellTwins(t, v1alpha1.MemberLeaving, nil)
	for _, m := range n.all() {
		eventually(t, 30*time.Second, m.name+" cleaned", func() bool { return m.says(v1alpha1.ReasonNodeCleaned) })
		if left := m.everything(t); left != "" {
			t.Errorf("%s: left behind:\n%s", m.name, left)
		}
	}
}

// dying agents, and what may happen to what they have made.
func dying() []fault {
	killed := fault{"agent killed", func(t *testing.T, m *machine) {
		m.stop(t, syscall.SIGKILL)
		m.start(t)
	}, nil}
	return append(passing()[1:], killed,
		script("firewall of IPv6 reloaded", "nft delete table ip6 sealane 2>/dev/null || true", ""),
		script("routes of IPv6 flushed", "ip -6 route flush table 5100", ""))
}

// asMade waits until all kernels are as fresh agents made them.
func (n *twins) asMade(t *testing.T, made map[*machine]string) {
	t.Helper()
	differ := ""
	defer func() {
		if t.Failed() {
			t.Log(differ)
		}
	}()
	eventually(t, 90*time.Second, "all kernels as of fresh agents", func() bool {
		var b strings.Builder
		for m, want := range made {
			if diff := gocmp.Diff(want, m.everything(t)); diff != "" {
				fmt.Fprintf(&b, "%s (-fresh +now)\n%s\n", m.name, diff)
			}
		}
		differ = b.String()
		return differ == ""
	})
}
