// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

var (
	steps = flag.Int("steps", 10, "of the random walk")
	seed  = flag.Uint64("seed", 5100, "of the random walk")

	translations = flag.Int("translations", 5, "steps of the random walk over translations")
)

// fault is something that is done to a gateway, and undone.
type fault struct {
	name       string
	do, repair func(t *testing.T, m *machine)
}

// script is a fault that commands bring about.
func script(name, do, repair string) fault {
	return fault{name, func(t *testing.T, m *machine) { m.run(t, do) },
		func(t *testing.T, m *machine) { m.run(t, repair) }}
}

// deaf is a fault that drops what arrives for some UDP ports.
func deaf(name, ports string) fault {
	const rule = "for t in iptables ip6tables; do $t-nft -t raw -%s PREROUTING -p udp --dport %s -j DROP; done"
	return script(name, fmt.Sprintf(rule, "I", ports), fmt.Sprintf(rule, "D", ports))
}

// lasting faults are there until they are repaired.
func (n *network) lasting() []fault {
	start := func(t *testing.T, m *machine) { m.start(t) }
	return []fault{
		{"link down", func(t *testing.T, m *machine) { m.run(t, "ip link set eth0 down") }, n.linkUp},
		{"agent killed", func(t *testing.T, m *machine) { m.stop(t, syscall.SIGKILL) }, start},
		deaf("cables cut in one direction", "4500:4515"),
		deaf("overlay cut in one direction", "4800"),
	}
}

// passing faults are the agent's to repair, if there is one.
func passing() []fault {
	// What is not there cannot be deleted, and what is there not be added.
	do := func(name, commands string) fault { return script(name, "( "+commands+" ) 2>/dev/null || true", "true") }
	return []fault{
		{"agent restarted", func(t *testing.T, m *machine) {
			m.stop(t, syscall.SIGTERM)
			m.start(t)
		}, nil},
		do("cable deleted", "ip link del sl-c0"),
		do("cable down", "ip link set sl-c1 down"),
		do("overlay deleted", "ip link del sl-vx"),
		do("routes flushed", "ip route flush table 5100; ip -6 route flush table 5100"),
		do("rules deleted", "ip rule del pref 105; ip -6 rule del pref 103"),
		do("firewall reloaded", "nft delete table ip sealane"),
		do("stray elements", `ip route add 10.77.0.0/16 dev sl-vx table 5100; ip rule add pref 103 iif sl-c9 lookup 5101
			ip neigh add 172.31.1.88 lladdr 02:51:ac:1f:01:58 dev sl-vx nud permanent
			bridge fdb add 02:51:ac:1f:01:58 dev sl-vx dst 172.31.1.88 self permanent
			ip link add sl-c9 type dummy; nft add set ip sealane stray '{ type ipv4_addr; }'`),
	}
}

// linkUp brings a machine's link up, with what went when it went down.
func (n *network) linkUp(t *testing.T, m *machine) {
	t.Helper()
	m.run(t, "ip link set eth0 up")
	if !m.ipv4Only {
		m.run(t, fmt.Sprintf("ip addr replace %s/64 dev eth0 nodad", m.ip6))
	}
	n.cni(t, m)
}

// everything lists what of Sealane is in a machine's kernel, but for counters, numbers of links, and addresses that the
// kernel gives them. Rules of one preference, which are for different packets, and the addresses of a link come in any
// order. Of a link that goes meanwhile the rest is left out.
func (m *machine) everything(t *testing.T) string {
	t.Helper()
	return m.run(t, `for l in $(ip -o link | grep -o 'sl-[a-z0-9]*' | sort); do {
			ip -o link show $l | sed 's/^[0-9]*: //'
			ip -o addr show dev $l | sed 's/^[0-9]*: //' | grep -v ' fe80:' | sort || true
			ip neigh show dev $l nud permanent | sort; ip -6 neigh show dev $l nud permanent | sort
			bridge fdb show dev $l | sort
			cat /proc/sys/net/ipv4/conf/$l/rp_filter
		} 2>/dev/null || true; done
		for f in -4 -6; do
			ip $f rule | grep 'lookup 51[012][0-9]' | sort || true
			for t in $(seq 5100 5125); do ip $f route show table $t 2>/dev/null || true; done
		done
		for f in ip ip6; do nft -s list table $f sealane 2>/dev/null | sort || true; done
		iptables-nft -S FORWARD | grep sealane || true; ip6tables-nft -S FORWARD | grep sealane || true
		conntrack -L 2>/dev/null | grep zone= || true`)
}

// TestGatewaysWalk: whatever happens to gateways, in whatever order, at rest the kernels of all nodes are as agents
// made them that began with a clean node, and packets pass.
func TestGatewaysWalk(t *testing.T) {
	t.Parallel()
	n := highlyAvailable(t)
	fresh := map[*machine]string{}
	for _, m := range n.all() {
		fresh[m] = m.everything(t)
	}
	random := rand.New(rand.NewPCG(*seed, 0))
	t.Logf("-seed %d -steps %d", *seed, *steps)
	gateways := []*machine{n.gw1, n.gw4, n.gw2, n.gw3}
	const rest = 10 // steps between two rests
	lasting := map[*machine]map[int]bool{}
	for _, m := range gateways {
		lasting[m] = map[int]bool{}
	}
	for step := 1; step <= *steps; step++ {
		m := gateways[random.IntN(len(gateways))]
		all := n.lasting()
		if i := random.IntN(2 * len(all)); i < len(all) {
			n.toggle(t, m, all[i], lasting[m][i], step)
			lasting[m][i] = !lasting[m][i]
		} else if p := passing(); m.agent != nil { // or nobody would repair it before a rest
			f := p[random.IntN(len(p))]
			t.Logf("step %d: %s: %s", step, m.name, f.name)
			f.do(t, m)
		}
		time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond) // the walk's own pace
		if step%rest != 0 && step != *steps {
			continue
		}
		for _, m := range gateways {
			for i, f := range all {
				if lasting[m][i] {
					n.toggle(t, m, f, true, step)
					lasting[m][i] = false
				}
			}
		}
		n.atRest(t, fresh)
	}
	n.tell(t, v1alpha1.MemberLeaving)
	for _, m := range n.all() {
		eventually(t, 20*time.Second, m.name+" cleaned", func() bool { return m.says(v1alpha1.ReasonNodeCleaned) })
		if left := m.everything(t); left != "" {
			t.Errorf("%s: left behind:\n%s", m.name, left)
		}
	}
}

func (n *network) toggle(t *testing.T, m *machine, f fault, there bool, step int) {
	t.Helper()
	if there {
		t.Logf("step %d: %s: %s, repaired", step, m.name, f.name)
		f.repair(t, m)
		return
	}
	t.Logf("step %d: %s: %s", step, m.name, f.name)
	f.do(t, m)
}

// atRest waits until all kernels are as they were and packets pass, both ways.
func (n *network) atRest(t *testing.T, fresh map[*machine]string) {
	t.Helper()
	differ := ""
	defer func() {
		if t.Failed() {
			t.Log(differ)
		}
	}()
	eventually(t, 90*time.Second, "all kernels as before", func() bool {
		var b strings.Builder
		for m, want := range fresh {
			if diff := cmp.Diff(want, m.everything(t)); diff != "" {
				fmt.Fprintf(&b, "%s (-fresh +now)\n%s\n", m.name, diff)
			}
		}
		differ = b.String()
		return differ == ""
	})
	for _, to := range []string{n.worker2.pods + ".10", n.worker2.pods6 + "::10"} {
		if out, err := within(n.worker1.pod, "ping -c5 -i0.1 -W1 "+to).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}
