// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/internal/netnstest"
)

var traces = flag.Bool("traces", false, "set by a test for a child that traces until it is killed")

func TestMain(m *testing.M) {
	flag.Parse()
	if *traces {
		t := Tracer{Protocol: unix.IPPROTO_TCP, Port: port, Duration: 30 * time.Second, Out: os.Stdout}
		if err := t.Run(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	netnstest.Main(m, enter)
}

// enter makes this namespace a router between a client's and a server's.
func enter() error {
	// No address waits for duplicates of it to be found. No flood of one test takes the next one's ICMP errors, of which
	// a destination gets six at once and then one a second.
	const setup = `ip link set lo up
echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad
for n in 1 2; do
	ip netns add n$n
	ip netns exec n$n sh -c 'echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad
		echo 0 > /proc/sys/net/ipv4/icmp_ratelimit; echo 0 > /proc/sys/net/ipv6/icmp/ratelimit'
	ip link add v$n type veth peer name eth0 netns n$n
	ip link set v$n up
	ip address add 10.1.$n.1/24 dev v$n
	ip address add fd00:$n::1/64 dev v$n nodad
	ip -n n$n link set lo up
	ip -n n$n link set eth0 up
	ip -n n$n address add 10.1.$n.2/24 dev eth0
	ip -n n$n address add fd00:$n::2/64 dev eth0 nodad
	ip -n n$n route add default via 10.1.$n.1
	ip -n n$n route add default via fd00:$n::1
done
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/ipv6/conf/all/forwarding`
	if out, err := exec.CommandContext(context.Background(), "sh", "-ec", setup).CombinedOutput(); err != nil {
		return fmt.Errorf("set up the namespaces: %w: %s", err, out)
	}
	return nil
}
