// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Networks and port of ESP that is wired by hand.
const (
	byHand1, byHand2 = "10.208.0", "10.209.0"
	handPort         = 4599
)

// TestThroughputOfIPsec measures, with -throughput rounds, what one connection between pods of two gateways carries by
// IPsec, against ESP of the kernel that is wired by hand between the same pods, with the same algorithm and size of
// packets, and that with a VXLAN device within, as cables have one.
func TestThroughputOfIPsec(t *testing.T) {
	if *rounds == 0 {
		t.Skip("it measures: say in how many rounds with -throughput")
	}
	if !espOfKernel() {
		t.Skip("the kernel of this machine has no ESP: TestThroughputOfTheKernelsESP of e2e/vm runs this where one has")
	}
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{"c1": byIPsec, "c2": byIPsec})
	n.sendBy(t, "sl-ci0", byIPsec)
	n.wireByHand(t)
	rates := n.ratesTo(t, n.gw2.pods+".10", byHand2+".10", byHand2+".11")
	ratio(t, "by Sealane, against ESP by hand", rates[0], rates[1])
	ratio(t, "by Sealane, against VXLAN in ESP by hand", rates[0], rates[2])
}

// wireByHand gives the pods of both gateways two addresses each, between which the kernel's ESP carries: at .10 by
// itself, at .11 by VXLAN within.
func (n *network) wireByHand(t *testing.T) {
	t.Helper()
	ends := []struct {
		*machine
		net string
		spi int
	}{{n.gw1, byHand1, 0x2001}, {n.gw2, byHand2, 0x2002}}
	for i, own := range ends {
		peer := ends[1-i]
		var fd int
		inNetworkOf(t, own.holder, func() (err error) {
			if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
				return os.NewSyscallError("socket", err)
			}
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_ENCAP, unix.UDP_ENCAP_ESPINUDP); err != nil {
				return os.NewSyscallError("setsockopt", err)
			}
			return unix.Bind(fd, &unix.SockaddrInet4{Port: handPort})
		})
		t.Cleanup(func() { _ = syscall.Close(fd) })
		state := func(from, to string, spi int) string {
			return fmt.Sprintf(`ip xfrm state add src %[1]s dst %[2]s proto esp spi %[3]d reqid 99 mode tunnel if_id 99 \
				replay-window 32 aead 'rfc4106(gcm(aes))' 0x%040[3]x 128 encap espinudp %[4]d %[4]d 0.0.0.0
				`, from, to, spi, handPort)
		}
		policy := func(direction, from, to, src, dst string) string {
			return fmt.Sprintf(`ip xfrm policy add dir %s src %s dst %s if_id 99 tmpl src %s dst %s proto esp \
				reqid 99 mode tunnel
				`, direction, from, to, src, dst)
		}
		script := "ip link add hand-esp type xfrm dev eth0 if_id 99; ip link set hand-esp mtu 1330 up; " +
			state(own.ip, peer.ip, peer.spi) + state(peer.ip, own.ip, own.spi)
		for _, direction := range []string{"in", "fwd"} {
			script += policy(direction, peer.net+".0/24", own.net+".0/24", peer.ip, own.ip)
		}
		script += policy("out", own.net+".0/24", peer.net+".0/24", own.ip, peer.ip)
		// VXLAN between the gateways' own addresses of these networks. Its packets have 50 bytes more.
		script += fmt.Sprintf(`
			ip addr add %[1]s.1/32 dev hand-esp; ip addr add %[1]s.1/24 dev cni0
			ip route add %[2]s.0/24 dev hand-esp src %[1]s.1
			ip link set hand-esp mtu 1380
			ip link add hand-vx type vxlan id 7 local %[1]s.1 remote %[2]s.1 dstport 4598 dev hand-esp
			ip link set hand-vx mtu 1330 up; ip addr add 10.210.0.%[3]d/24 dev hand-vx
			ip route add %[2]s.11/32 via 10.210.0.%[4]d dev hand-vx
			iptables-nft -A FORWARD -i hand-+ -j ACCEPT`,
			own.net, peer.net, i+1, 2-i)
		own.run(t, script)
		out, err := within(own.pod, fmt.Sprintf(`ip addr add %[1]s.10/24 dev eth0; ip addr add %[1]s.11/32 dev eth0
			ip route add %[2]s.10/32 via %[1]s.1 src %[1]s.10 mtu 1330
			ip route add %[2]s.11/32 via %[1]s.1 src %[1]s.11 mtu 1330`,
			own.net, peer.net)).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: addresses of the pod: %v\n%s", own.name, err, out)
		}
	}
}
