// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// legacyForward is what a FORWARD chain of legacyFirewall has by itself.
const legacyForward = "-P FORWARD DROP\n-A FORWARD -i cni0 -j ACCEPT\n"

// legacyFirewall loads a firewall by iptables-legacy, which forwards what is from the machine's pods alone.
func (m *machine) legacyFirewall(t *testing.T) {
	t.Helper()
	m.run(t, `for t in iptables ip6tables; do
			$t-legacy -P FORWARD DROP; $t-legacy -F FORWARD; $t-legacy -A FORWARD -i cni0 -j ACCEPT
		done`)
}

// TestHostsWithIptablesLegacy, whose policy drops what is forwarded: traffic between clusters passes, on hosts that
// have it before their agents begin and after, once a firewall is loaded again, and nothing is left of it at the end.
func TestHostsWithIptablesLegacy(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("iptables-legacy"); err != nil {
		t.Skip("this machine has no iptables-legacy:", err)
	}
	n := withoutMachines(t)
	if out, err := n.command("iptables-legacy -S FORWARD && ip6tables-legacy -S FORWARD").CombinedOutput(); err != nil {
		t.Skipf("the kernel of this machine has no ip_tables: %v\n%s", err, out)
	}
	n.gw1 = n.newMachine(t, "gw1", "c1", 1, "10.8.0", "fd08:0:0:0")
	n.worker1 = n.newMachine(t, "worker1", "c1", 2, "10.8.1", "fd08:0:0:1")
	n.gw2 = n.newMachine(t, "gw2", "c2", 3, "10.9.0", "fd09:0:0:0")
	for _, m := range n.all() {
		m.run(t, "iptables-nft -P FORWARD ACCEPT; ip6tables-nft -P FORWARD ACCEPT")
	}
	n.gw1.legacyFirewall(t)
	n.worker1.legacyFirewall(t)
	n.tell(t, v1alpha1.MemberActive)
	for _, m := range n.all() {
		m.start(t)
	}
	pass := func() bool {
		for from, to := range map[*exec.Cmd][]string{n.worker1.pod: {podOfC2, podOfC26},
			n.gw2.pod: {n.worker1.pods + ".10", n.worker1.pods6 + "::10"}} {
			for _, address := range to {
				if within(from, "ping -c1 -W1 "+address).Run() != nil {
					return false
				}
			}
		}
		return true
	}
	// No event tells of this firewall: the next round finds out, whatever it is for.
	passes := func(when string) {
		t.Helper()
		for _, m := range n.all() {
			_ = m.agent.Process.Signal(syscall.SIGHUP)
		}
		eventually(t, time.Minute, "traffic: "+when, pass)
	}
	passes("with a firewall from the beginning")
	n.gw2.legacyFirewall(t)
	passes("with a firewall that came later")
	n.worker1.legacyFirewall(t)
	passes("with a firewall that was loaded again")

	// What nobody accepts is dropped, until an agent begins.
	n.worker1.stop(t, syscall.SIGKILL)
	n.worker1.legacyFirewall(t)
	if pass() {
		t.Error("the firewall of worker1 lets pass what nobody has accepted: this shows nothing")
	}
	n.worker1.start(t)
	passes("with an agent that begins")
	for _, m := range n.all() {
		for _, iptables := range []string{"iptables", "ip6tables"} {
			m.run(t, "[ $("+iptables+"-legacy -S FORWARD | grep -c 'comment sealane') = 2 ]")
		}
	}
	n.tell(t, v1alpha1.MemberLeaving)
	for _, m := range n.all() {
		eventually(t, 20*time.Second, m.name+" cleaned", func() bool { return m.says(v1alpha1.ReasonNodeCleaned) })
		for _, iptables := range []string{"iptables", "ip6tables"} {
			if left := m.run(t, iptables+"-legacy -S FORWARD"); left != legacyForward {
				t.Errorf("%s: %s-legacy has\n%swant\n%s", m.name, iptables, left, legacyForward)
			}
		}
	}
}
