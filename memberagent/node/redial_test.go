// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestNATForgetsAConnection: a router that forgets a connection under traffic, and gives it another port, costs no more
// than the packets of a moment: the gateway behind it sends, and the other one sends where that comes from.
func TestNATForgetsAConnection(t *testing.T) {
	t.Parallel()
	n := newInternet(t)
	s := n.site(t, "c1", 1)
	a := published{s.inside(t, "c1", 10), nil, nil}
	b := published{n.gateway(t, "c2", publicHostNumber), at(publicHost), nil}
	meet(t, a, b)
	eventually(t, 10*time.Second, "connected", func() bool { return joined(a.machine, b.machine) })
	before := b.connection("c1").Address
	const each, count = "0.05", 80
	to := map[*machine]string{a.machine: b.pods + ".10", b.machine: a.pods + ".10"}
	out := map[*machine]*strings.Builder{}
	var pings []*exec.Cmd
	for m, address := range to {
		ping := m.command(fmt.Sprintf("ping -n -D -i %s -c %d -W 1 %s || true", each, count, address))
		out[m] = &strings.Builder{}
		ping.Stdout = out[m]
		if err := ping.Start(); err != nil {
			t.Fatal(err)
		}
		pings = append(pings, ping)
	}
	eventually(t, 5*time.Second, "traffic", func() bool {
		return a.connection("c2").Status == v1alpha1.ConnectionConnected && b.pings(a.pods+".10", "")
	})
	s.run(t, `nft insert rule ip router post oifname out udp sport 4500 masquerade to :40000-41000; conntrack -F 2>&1`)
	for _, ping := range pings {
		if err := ping.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	for m, text := range out {
		gap, answers := longestGap(t, text.String())
		t.Logf("%s: %d answers of %d, none for %s", m.name, answers, count, gap.Round(time.Millisecond))
		if most := time.Duration(*slow) * time.Second; gap > most || answers < count/2 {
			t.Errorf("%s: expected no gap longer than %s, found %s, and %d answers of %d", m.name, most, gap, answers, count)
		}
	}
	eventually(t, 5*time.Second, "b knows the new port", func() bool {
		now := b.connection("c1").Address
		return now != before && strings.HasPrefix(now, routerOfC1+":4")
	})
}

// longestGap between answers of ping -D, and how many there are.
func longestGap(t *testing.T, text string) (gap time.Duration, answers int) {
	t.Helper()
	var last float64
	for line := range strings.Lines(text) {
		stamp, rest, _ := strings.Cut(strings.TrimPrefix(line, "["), "]")
		at, err := strconv.ParseFloat(stamp, 64)
		if err != nil || !strings.Contains(rest, "bytes from") {
			continue
		}
		if answers++; answers > 1 {
			gap = max(gap, time.Duration((at-last)*float64(time.Second)))
		}
		last = at
	}
	return gap, answers
}

// TestAnAgentThatRestartsDialsWhatWasRight, where others come first in what is published.
func TestAnAgentThatRestartsDialsWhatWasRight(t *testing.T) {
	t.Parallel()
	n := newInternet(t)
	a := published{n.site(t, "c1", 1).inside(t, "c1", 10), nil, nil}
	b := published{n.gateway(t, "c2", publicHostNumber), at(nobody, nobodyElse, internet+".78", publicHost), nil}
	meet(t, a, b)
	first := eventually(t, 30*time.Second, "connected", func() bool { return joined(a.machine, b.machine) })
	eventually(t, 5*time.Second, "kept for a restart", func() bool {
		text, err := os.ReadFile(a.path("endpoints.json"))
		return err == nil && strings.Contains(string(text), publicHost)
	})
	a.stop(t, syscall.SIGKILL)
	a.start(t)
	again := eventually(t, 1500*time.Millisecond, "traffic again, before a fourth address would have its turn",
		func() bool { return a.pings(b.pods+".10", "") })
	t.Logf("connected after %s at first, %s after a restart", first.Round(time.Millisecond), again.Round(time.Millisecond))
	if found := a.connection("c2").Address; found != publicHost+":4500" {
		t.Errorf("expected the address that was right, found %s", found)
	}
}

// TestAFirstHandshakeThatIsLost costs the gateway that begins again half a second, and not the time until peers are
// looked at again.
func TestAFirstHandshakeThatIsLost(t *testing.T) {
	n := newInternet(t)
	a := published{n.gateway(t, "c1", 8), at(internet + ".8"), nil}
	b := published{n.gateway(t, "c2", publicHostNumber), at(publicHost), nil}
	meet(t, a, b)
	eventually(t, 10*time.Second, "connected", func() bool { return joined(a.machine, b.machine) })
	eventually(t, 5*time.Second, "kept for a restart", func() bool {
		text, err := os.ReadFile(a.path("endpoints.json"))
		return err == nil && strings.Contains(string(text), publicHost)
	})
	restarts := func(what string) time.Duration {
		ping := a.command("ping -n -D -i 0.02 -c 200 -W 1 " + b.pods + ".10 || true")
		var out strings.Builder
		ping.Stdout = &out
		if err := ping.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		a.stop(t, syscall.SIGKILL)
		a.start(t)
		if err := ping.Wait(); err != nil {
			t.Fatal(err)
		}
		gap, answers := longestGap(t, out.String())
		t.Logf("%s: no answer for %s, %d answers of 200", what, gap.Round(time.Millisecond), answers)
		if answers < 50 {
			t.Fatalf("%s: expected answers before and after, found %d", what, answers)
		}
		return gap
	}
	plain := restarts("nothing is lost")
	// An initiation is a packet of 148 bytes, of type 1, and the first of two exceeds the quota.
	b.run(t, `nft add table ip lossy
		nft 'add chain ip lossy in { type filter hook input priority raw; }'
		nft add rule ip lossy in udp dport 4500 @th,64,8 1 quota 200 bytes counter drop`)
	lossy := restarts("the first initiation is lost")
	if out := b.run(t, "nft list table ip lossy"); !strings.Contains(out, "counter packets 1 ") {
		t.Fatalf("expected one initiation to be lost, found %s", out)
	}
	if most := 800 * time.Millisecond * time.Duration(*slow); lossy > plain+most {
		t.Errorf("expected %s more at most, found %s and %s", most, plain, lossy)
	}
}
