// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/node"
)

// overlayByName is a service of c1 whose endpoints are port 4800 of worker1 and gw1.
const overlayByName = "10.96.0.99:53"

// ipvsFacts are what TestServicesByIPVS is told of the clusters' API servers, which the first network namespace
// reaches, and of the imports that c1's agent has made there.
type ipvsFacts struct {
	APIServers map[string]string `json:"apiServers"`
	// Pods is the address of the import whose endpoints are c2's pods, Service of that which has their ClusterIP instead,
	// and Global of that which has their global address.
	Pods    string `json:"pods"`
	Service string `json:"service"`
	Global  string `json:"global"`
}

// TestServicesByIPVS: kube-proxy runs in ipvs mode on every node. Imports answer to pods and hosts on workers and
// gateways, with pods on all nodes of the other cluster, which see the client's own address; those of nodes' processes
// is the node's pod address.
func TestServicesByIPVS(t *testing.T) {
	if *ipvs == "" {
		t.Skip("kernels of containers rarely have ip_vs: package e2e/vm runs it in a virtual machine")
	}
	text, err := os.ReadFile(*ipvs)
	if err != nil {
		t.Fatal(err)
	}
	var facts ipvsFacts
	if err := json.Unmarshal(text, &facts); err != nil {
		t.Fatal(err)
	}
	n := withoutMachines(t)
	// Under emulation, beside other tests, answers to probes take their time.
	n.health = v1alpha1.HealthCheckSpec{IntervalMilliseconds: 1000, FailureThreshold: 10}
	n.networks = map[string]v1alpha1.Networks{
		"c1": {PodCIDRs: []string{"10.8.0.0/16"}, ServiceCIDRs: []string{"10.96.0.0/16"}},
		"c2": {PodCIDRs: []string{"10.9.0.0/16"}, ServiceCIDRs: []string{"10.99.0.0/16"}},
	}
	n.gw1 = n.newMachine(t, "gw1", "c1", 1, "10.8.0", "fd08:0:0:0")
	n.worker1 = n.newMachine(t, "worker1", "c1", 2, "10.8.1", "fd08:0:0:1")
	n.gw2 = n.newMachine(t, "gw2", "c2", 3, "10.9.0", "fd09:0:0:0")
	n.worker2 = n.newMachine(t, "worker2", "c2", 6, "10.9.2", "fd09:0:0:2")
	n.tell(t, v1alpha1.MemberActive)
	for _, m := range n.all() {
		n.cni(t, m)
		m.forwardsItsPods(t)
		m.run(t, "iptables-nft -I FORWARD -m conntrack --ctstate INVALID -j DROP")
		m.start(t)
	}
	for _, m := range []*machine{n.worker1, n.gw1, n.gw2} {
		m.proxies(t, facts)
	}
	n.gw2.serve(t)
	n.worker2.serve(t)
	eventually(t, time.Minute, "gateways connected", func() bool { return n.gw1.connected() && n.gw2.connected() })
	// The endpoints of the imports, by TCP and by UDP, and of the service that is none, and of the service of c2.
	for m, servers := range map[*machine]string{n.worker1: "10", n.gw1: "10", n.gw2: "4"} {
		m.serves(t, servers)
	}
	t.Run("from everywhere, to all pods", func(t *testing.T) {
		n.byIPVS(t, map[string]string{"pods": facts.Pods, "a ClusterIP": facts.Service}, 4)
	})
	t.Run("nothing to the overlay's port", func(t *testing.T) { n.overlayByIPVS(t) })
	t.Run("no relay", func(t *testing.T) { n.relayByIPVS(t, facts) })
	t.Run("to a cluster with a block", func(t *testing.T) {
		n.knownByABlock(t)
		n.byIPVS(t, map[string]string{"a global address": facts.Global}, 24) // whose gateway goes by a hash
	})
}

// knownByABlock has c1 know c2 by a block alone, in which the service of both pods has an address.
func (n *network) knownByABlock(t *testing.T) {
	t.Helper()
	const block = "120.2.0.0/24"
	service := v1alpha1.IngressAllocation{IP: "120.2.0.10"}
	for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		service.Ports = append(service.Ports, v1alpha1.GlobalPort{Protocol: p, Port: 80, Backends: []v1alpha1.GlobalBackend{
			{IP: n.gw2.pods + ".10", Port: 8080}, {IP: n.worker2.pods + ".10", Port: 8080}}})
	}
	for _, m := range n.all() {
		var o node.Objects
		if err := m.read("cluster.json", &o); err != nil {
			t.Fatal(err)
		}
		remote := &o.Peering.Spec.RemoteClusters[0]
		if m.cluster == "c1" {
			remote.Networks, remote.GlobalCIDR = v1alpha1.Networks{}, block
		} else {
			remote.Translated, o.Peering.Spec.GlobalCIDR = true, block
			o.GlobalAllocations = []v1alpha1.GlobalAllocation{ingressOf("web", service)}
		}
		if err := m.write("cluster.json", o); err != nil {
			t.Fatal(err)
		}
		_ = m.agent.Process.Signal(syscall.SIGHUP)
	}
}

// serves waits until ipvs has as many servers on the machine.
func (m *machine) serves(t *testing.T, servers string) {
	t.Helper()
	eventually(t, time.Minute, m.name+" has all services", func() bool {
		out, err := m.command("grep -c -e '-> [0-9A-F]*:' /proc/net/ip_vs").Output()
		return err == nil && strings.TrimSpace(string(out)) == servers
	})
}

// answer asks port 80 until somebody answers: a machine under emulation may take a gateway for dead for a moment.
func answer(t *testing.T, from *exec.Cmd, network, ip string) (server string, client netip.Addr) {
	t.Helper()
	eventually(t, 10*time.Second, "an answer of "+ip, func() (ok bool) {
		var err error
		server, client, err = ask(t, from, network, ip+":80")
		return err == nil
	})
	return server, client
}

// byIPVS asks imports, by what their endpoints are, so many times from everywhere.
func (n *network) byIPVS(t *testing.T, imports map[string]string, times int) {
	for _, c := range []struct {
		name   string
		from   *exec.Cmd
		client string
	}{
		{"a pod of the worker", n.worker1.pod, "10.8.1.10"}, {"a pod of the gateway", n.gw1.pod, "10.8.0.10"},
		{"the worker", n.worker1.holder, "10.8.1.1"}, {"the gateway", n.gw1.holder, "10.8.0.1"},
	} {
		for what, to := range imports {
			for _, network := range ofIPv4.networks() {
				t.Run(fmt.Sprintf("%s, to %s by %s", c.name, what, network), func(t *testing.T) {
					servers, want := map[string]int{}, netip.MustParseAddr(c.client)
					for range times {
						server, client := answer(t, c.from, network, to)
						servers[server]++
						if client != want {
							t.Errorf("the pod on %s sees %s: want %s", server, client, want)
						}
					}
					if servers["gw2"] == 0 || servers["worker2"] == 0 {
						t.Errorf("answered by %v: want both pods", servers)
					}
				})
			}
		}
	}
}

// served counts what a rule of a chain has dropped.
func (m *machine) served(t *testing.T, chain, rule string) int {
	t.Helper()
	return counted(t, m.command("nft list chain ip sealane "+chain), rule)
}

// overlayByIPVS: a service whose endpoints are the overlay's port of two nodes leads to neither.
func (n *network) overlayByIPVS(t *testing.T) {
	host := func() int { return n.worker1.served(t, "host", "udp dport 4800") }
	elsewhere := func() int { return n.worker1.served(t, "served", "udp dport 4800") }
	eventually(t, 5*time.Second, "dropped, to this node and to another", func() bool {
		// Another client each time, for which ipvs takes the next server.
		c, err := dialFrom(t, n.worker1.pod, "udp4", overlayByName)
		if err == nil {
			_, err = c.Write([]byte("forged"))
		}
		return err == nil && host() > 0 && elsewhere() > 0
	})
}

// relayByIPVS: what another cluster sends to an import of this one, whose pods are in another cluster, goes nowhere.
func (n *network) relayByIPVS(t *testing.T, facts ipvsFacts) {
	server, _, err := ask(t, n.gw2.pod, "tcp4", facts.Pods+":80")
	if err == nil {
		t.Errorf("%s answers", server)
	}
	if n.gw1.served(t, "served", "ip saddr @remote counter") == 0 {
		t.Error("the gateway has dropped nothing, so this could not fail")
	}
}

// proxies starts the machine's kube-proxy in ipvs mode.
func (m *machine) proxies(t *testing.T, facts ipvsFacts) {
	t.Helper()
	m.relays(t, "127.0.0.1:6443", facts.APIServers[m.cluster])
	log, err := os.Create(m.path("kube-proxy.log"))
	if err != nil {
		t.Fatal(err)
	}
	pods := m.pods[:strings.LastIndex(m.pods, ".")] + ".0.0/16"
	proxy := m.command("exec kube-proxy --proxy-mode=ipvs --hostname-override=" + m.name + " --cluster-cidr=" + pods +
		" --conntrack-max-per-core=0 --kubeconfig=/" + m.cluster + ".kubeconfig")
	proxy.Stdout, proxy.Stderr = log, log
	proxy.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = proxy.Process.Kill()
		_ = proxy.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("kube-proxy of %s:\n%s", m.name, text)
		}
	})
}

// relays what connects to an address of the machine's loopback to one that the first network namespace reaches.
func (m *machine) relays(t *testing.T, from, to string) {
	t.Helper()
	var l net.Listener
	inNetworkOf(t, m.holder, func() (err error) {
		l, err = new(net.ListenConfig).Listen(t.Context(), "tcp4", from)
		return err
	})
	t.Cleanup(func() { _ = l.Close() })
	first := &exec.Cmd{Process: &os.Process{Pid: 1}}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = in.Close() }()
				var out net.Conn
				if err := visit(first, func() (err error) {
					out, err = (&net.Dialer{}).DialContext(context.Background(), "tcp4", to)
					return err
				}); err != nil {
					return
				}
				defer func() { _ = out.Close() }()
				go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
				_, _ = io.Copy(in, out)
			}()
		}
	}()
}
