// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"flag"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

var setsClock = flag.Bool("clock", false, "set the machine's clock: it is a virtual one that nobody else uses")

// TestClocksThatJump: whoever sets the clock, as a machine does that slept or comes to hear the time, ends no security
// association by that, neither then nor when the kernel looks at how old these are: what is too old by then is replaced
// first. Further ones are made as before.
func TestClocksThatJump(t *testing.T) {
	if !*setsClock {
		t.Skip("this machine's clock is not to be set: TestIPsecByTheKernel of e2e/vm runs this in a virtual one")
	}
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{"c1": byIPsec, "c2": byIPsec})
	n.sendBy(t, "sl-ci0", byIPsec)
	goesOn := n.goesOn(t)
	for _, by := range []time.Duration{24 * time.Hour, -48 * time.Hour, 365 * 24 * time.Hour} {
		when := fmt.Sprintf("the clock was set by %s", by)
		setClock(t, by)
		goesOn(when, time.Second)
		if espOfKernel() {
			for _, m := range n.gateways() {
				eventually(t, 20*time.Second, m.name+" looks at ages", m.looksAtAges)
			}
			goesOn(when+", and the kernel looked at the ages", 5*time.Second)
		}
		n.gw1.rekey(t)
		goesOn(when+", and further associations were made", 2*time.Second)
		n.sendBy(t, "sl-ci0", byIPsec)
	}
	n.sealed(t)
}

// setClock of the machine.
func setClock(t *testing.T, by time.Duration) {
	t.Helper()
	now, err := unix.TimeToTimespec(time.Now().Add(by))
	if err == nil {
		err = unix.ClockSettime(unix.CLOCK_REALTIME, &now)
	}
	if err != nil {
		t.Fatalf("set the clock by %s: %v", by, err)
	}
}

// stateOfKernel is a security association as ip shows it with its statistics, and limits of its age.
var stateOfKernel = regexp.MustCompile(`(?s)^(src \S+ dst \S+).* spi (0x[0-9a-f]+).* reqid (\d+).*` +
	` aead (\S+) (0x[0-9a-f]+) \(\d+ bits\) (\d+).* espinudp sport (\d+) dport (\d+) addr (\S+).*` +
	` expire add: soft (\d+)\(sec\), hard (\d+)\(sec\)`)

// looksAtAges has the kernel look at how old its security associations are, within a second, as it does at the end of
// their lives. It does so when they are updated, be it with what they are already. False is that one has just gone.
func (m *machine) looksAtAges() bool {
	out, err := m.command("ip -s xfrm state").Output()
	states := strings.Split("\n"+strings.ReplaceAll(string(out), "\t", " "), "\nsrc ")[1:]
	if err != nil || len(states) < 2 {
		return false
	}
	for _, state := range states {
		s := stateOfKernel.FindStringSubmatch("src " + state)
		if s == nil || m.command(fmt.Sprintf("ip xfrm state update %s proto esp spi %s reqid %s mode tunnel aead '%s' %s %s"+
			" encap espinudp %s %s %s limit time-soft %s limit time-hard %s",
			s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10], s[11])).Run() != nil {
			return false
		}
	}
	return true
}

// goesOn returns what fails the test if packets between the workers do not pass for some time. Where processors are
// emulated, what takes the place of another association costs some of them, and charon encrypts few in a second.
func (n *network) goesOn(t *testing.T) func(when string, during time.Duration) {
	t.Helper()
	if !espOfKernel() {
		return func(when string, during time.Duration) {
			t.Helper()
			sent, lost := 0, 0
			for end := time.Now().Add(during); time.Now().Before(end); sent++ {
				if !n.worker1.pings(n.worker2.pods+".10", "") {
					lost++
				}
			}
			if t.Logf("%s: %d of %d packets were lost", when, lost, sent); lost > 1 {
				t.Errorf("%s: %d of %d packets were lost", when, lost, sent)
			}
		}
	}
	f := newTraffic(t, n.worker1, n.worker2)
	return func(when string, during time.Duration) {
		t.Helper()
		f.stretch.lasts(t, during)
		f.stretch.check(t, when, allowed{lost: 10, outage: 100 * time.Millisecond})
		f.begin()
	}
}
