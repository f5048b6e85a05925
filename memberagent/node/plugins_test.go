// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"testing"
	"time"
)

// The rules, routes and marks that plugins leave on a node, as their documentation has them; each takes the machine's
// number within c1. Cluster networks are 10.8.0.0/16, all of which the plugin's pool is.
const (
	// calico: a route to each pod's link and a blackhole behind it, an answer to every ARP, policies ahead of everybody in
	// FORWARD that drop what is not known and what is INVALID and mark what they let pass (0x10000), a check of the
	// way back (0x40000), and natOutgoing.
	calico = `ip link set pod0 down; ip link set pod0 nomaster; ip link set pod0 name cali0; ip link set cali0 up
		ip addr flush dev cni0; ip addr add 10.8.%[1]d.1/32 dev cni0
		echo 1 > /proc/sys/net/ipv4/conf/cali0/proxy_arp; echo 0 > /proc/sys/net/ipv4/neigh/cali0/proxy_delay
		echo 1 > /proc/sys/net/ipv4/conf/cali0/rp_filter
		ip route add default via 172.31.1.254
		ip route add 10.8.%[1]d.10 dev cali0; ip route add blackhole 10.8.%[1]d.0/26 proto 80
		iptables-nft-restore -n <<EOF
*raw
:cali-PREROUTING - [0:0]
-A cali-PREROUTING -j MARK --set-xmark 0x0/0xf0000
-A cali-PREROUTING -i cali+ -j MARK --set-xmark 0x40000/0x40000
-A cali-PREROUTING -m mark --mark 0x40000/0x40000 -m rpfilter --validmark --invert -j DROP
-I PREROUTING -j cali-PREROUTING
COMMIT
*filter
:cali-FORWARD - [0:0]
:cali-from-wl - [0:0]
:cali-to-wl - [0:0]
-A cali-FORWARD -j MARK --set-xmark 0x0/0xe0000
-A cali-FORWARD -i cali+ -j cali-from-wl
-A cali-FORWARD -o cali+ -j cali-to-wl
-A cali-from-wl -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-from-wl -m conntrack --ctstate INVALID -j DROP
-A cali-from-wl -j MARK --set-xmark 0x10000/0x10000
-A cali-to-wl -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-to-wl -m conntrack --ctstate INVALID -j DROP
-A cali-to-wl -j MARK --set-xmark 0x0/0x10000
-A cali-to-wl -s 10.9.0.10 -p tcp --dport 8080 -j MARK --set-xmark 0x10000/0x10000
-A cali-to-wl -s 10.9.0.10 -p udp --dport 8080 -j MARK --set-xmark 0x10000/0x10000
-A cali-to-wl -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-to-wl -j DROP
-A FORWARD -m mark --mark 0x10000/0x10000 -j ACCEPT
-I FORWARD -j cali-FORWARD
COMMIT
*nat
:cali-nat-outgoing - [0:0]
-A cali-nat-outgoing -s 10.8.0.0/16 ! -d 10.8.0.0/16 -j MASQUERADE --random-fully
-I POSTROUTING -j cali-nat-outgoing
COMMIT
EOF`
	calicoPod = `ip route flush dev eth0; ip addr flush dev eth0; ip addr add 10.8.%[1]d.10/32 dev eth0
		ip route add 169.254.1.1 dev eth0; ip route add default via 169.254.1.1`
	// cilium: the local table moves behind rules for its proxy (0x200), to and from which nothing is tracked; pods' links
	// have no check of the way back; what leaves by other links than its own is masqueraded.
	cilium = `ip link set pod0 down; ip link set pod0 nomaster; ip link set pod0 name lxc0; ip link set lxc0 up
		ip link set cni0 name cilium_host; ip addr flush dev cilium_host; ip addr add 10.8.%[1]d.1/32 dev cilium_host
		ip link set cilium_host up
		echo 1 > /proc/sys/net/ipv4/conf/lxc0/proxy_arp; echo 0 > /proc/sys/net/ipv4/neigh/lxc0/proxy_delay
		for l in lxc0 cilium_host; do echo 0 > /proc/sys/net/ipv4/conf/$l/rp_filter; done
		echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
		ip route add 10.8.%[1]d.10 dev lxc0; ip route add 10.8.%[1]d.0/24 via 10.8.%[1]d.1 dev cilium_host
		ip rule add pref 100 lookup local; ip rule del pref 0
		ip rule add pref 9 fwmark 0x200/0xf00 lookup 2004; ip route add local default dev lo table 2004
		ip rule add pref 10 fwmark 0xa00/0xf00 lookup 2005; ip route add default via 10.8.%[1]d.1 dev cilium_host table 2005
		iptables-nft-restore -n <<EOF
*raw
:CILIUM_PRE_raw - [0:0]
-A CILIUM_PRE_raw -m mark --mark 0x200/0xf00 -j CT --notrack
-I PREROUTING -j CILIUM_PRE_raw
COMMIT
*mangle
:CILIUM_PRE_mangle - [0:0]
-A CILIUM_PRE_mangle -i lxc+ -j MARK --set-xmark 0xf00/0xf00
-I PREROUTING -j CILIUM_PRE_mangle
COMMIT
*filter
:CILIUM_FORWARD - [0:0]
-A CILIUM_FORWARD -o cilium_host -j ACCEPT
-A CILIUM_FORWARD -i cilium_host -j ACCEPT
-A CILIUM_FORWARD -i lxc+ -j ACCEPT
-A FORWARD -j CILIUM_FORWARD
COMMIT
*nat
:CILIUM_POST_nat - [0:0]
-A CILIUM_POST_nat -s 10.8.%[1]d.0/24 ! -d 10.8.0.0/16 ! -o cilium_+ -j MASQUERADE
-I POSTROUTING -j CILIUM_POST_nat
COMMIT
EOF`
	ciliumPod = `ip route flush dev eth0; ip addr flush dev eth0; ip addr add 10.8.%[1]d.10/32 dev eth0
		ip route add 10.8.%[1]d.1 dev eth0; ip route add default via 10.8.%[1]d.1`
	// k3s: kube-router's policies, which put themselves ahead of everybody in FORWARD with each of their rounds, drop what
	// is INVALID, refuse what no policy lets in (0x10000) and mark what they let pass (0x20000); flannel's accepts and
	// masquerading.
	k3s = `ip route add default via 172.31.1.254
		iptables-nft-restore -n <<EOF
*filter
:KUBE-ROUTER-FORWARD - [0:0]
:KUBE-POD-FW-POD0 - [0:0]
:KUBE-NWPLCY-POD0 - [0:0]
:KUBE-NWPLCY-DEFAULT - [0:0]
:FLANNEL-FWD - [0:0]
-A KUBE-ROUTER-FORWARD -d 10.8.%[1]d.10 -j KUBE-POD-FW-POD0
-A KUBE-ROUTER-FORWARD -s 10.8.%[1]d.10 -j KUBE-POD-FW-POD0
-A KUBE-ROUTER-FORWARD -m mark --mark 0x20000/0x20000 -j ACCEPT
-A KUBE-POD-FW-POD0 -m conntrack --ctstate INVALID -j DROP
-A KUBE-POD-FW-POD0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A KUBE-POD-FW-POD0 -d 10.8.%[1]d.10 -m addrtype --src-type LOCAL -j ACCEPT
-A KUBE-POD-FW-POD0 -d 10.8.%[1]d.10 -j KUBE-NWPLCY-POD0
-A KUBE-POD-FW-POD0 -s 10.8.%[1]d.10 -j KUBE-NWPLCY-DEFAULT
-A KUBE-POD-FW-POD0 -m mark ! --mark 0x10000/0x10000 -j REJECT --reject-with icmp-port-unreachable
-A KUBE-POD-FW-POD0 -j MARK --set-xmark 0x0/0x10000
-A KUBE-POD-FW-POD0 -j MARK --set-xmark 0x20000/0x20000
-A KUBE-NWPLCY-POD0 -s 10.9.0.10 -p tcp --dport 8080 -j MARK --set-xmark 0x10000/0x10000
-A KUBE-NWPLCY-POD0 -s 10.9.0.10 -p udp --dport 8080 -j MARK --set-xmark 0x10000/0x10000
-A KUBE-NWPLCY-DEFAULT -j MARK --set-xmark 0x10000/0x10000
-A FLANNEL-FWD -s 10.8.0.0/16 -j ACCEPT
-A FLANNEL-FWD -d 10.8.0.0/16 -j ACCEPT
-A FORWARD -m mark --mark 0x20000/0x20000 -j ACCEPT
-A FORWARD -j FLANNEL-FWD
-I FORWARD -j KUBE-ROUTER-FORWARD
COMMIT
*nat
:FLANNEL-POSTRTG - [0:0]
-A FLANNEL-POSTRTG -s 10.8.%[1]d.0/24 -d 10.8.0.0/16 -j RETURN
-A FLANNEL-POSTRTG -s 10.8.0.0/16 -d 10.8.%[1]d.0/24 -j RETURN
-A FLANNEL-POSTRTG ! -s 10.8.0.0/16 -d 10.8.%[1]d.0/24 -j RETURN
-A FLANNEL-POSTRTG -s 10.8.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE --random-fully
-A FLANNEL-POSTRTG ! -s 10.8.0.0/16 -d 10.8.0.0/16 -j MASQUERADE --random-fully
-A POSTROUTING -j FLANNEL-POSTRTG
COMMIT
EOF`
	k3sPod = `ip link set eth0 mtu 1450; ip -4 addr show eth0 | grep -q 10.8.%[1]d.10/`
)

// TestRulesOfPlugins: among the rules, routes and marks that a plugin leaves on nodes packets pass between its pods, on
// a worker and on a gateway, and those of another cluster, with the addresses that they were sent from; and what its
// policies drop is dropped.
func TestRulesOfPlugins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, node, pod string
		// policies say that others than the other gateway's pod, and other ports than 8080, are not let in.
		policies bool
	}{{"Calico", calico, calicoPod, true}, {"Cilium", cilium, ciliumPod, false}, {"k3s", k3s, k3sPod, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t)
			n.gw2.forwardsItsPods(t)
			n.gw2.serve(t)
			for i, m := range []*machine{n.gw1, n.worker1} {
				eventually(t, 20*time.Second, m.name+" has its accepts", func() bool {
					return m.command("iptables-nft -S FORWARD | grep -q sealane").Run() == nil
				})
				m.run(t, fmt.Sprintf(c.node, i))
				if out, err := within(m.pod, fmt.Sprintf(c.pod, i)).CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				m.serve(t)
			}
			for _, m := range []*machine{n.worker1, n.gw1} {
				eventually(t, 20*time.Second, m.name+" and its pod reach the other cluster", func() bool {
					return within(m.pod, "ping -c1 -W1 10.9.0.10").Run() == nil && m.pings("10.9.0.10", "")
				})
				for _, network := range []string{"udp4", "tcp4"} {
					n.asked(t, m, network, "10.9.0.10", "gw2", m.pods+".10")
					n.asked(t, n.gw2, network, m.pods+".10", m.name, "10.9.0.10")
				}
				if got := within(n.gw2.pod, "ping -c1 -W1 "+m.pods+".10").Run() == nil; got == c.policies {
					t.Errorf("%s is pinged: %v, and policies that drop this are there: %v", m.name, got, c.policies)
				}
			}
		})
	}
}
