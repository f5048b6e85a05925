// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/strongswan/govici/vici"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/cable"
	"github.com/sealane-io/sealane/dataplane/ipsec"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/memberagent/node"
)

const byIPsec = v1alpha1.CableIPsec

// ipsecDir is the directory that the agent of a machine has in common with what runs charon, if anything does.
func ipsecDir(dir string) string {
	path, err := filepath.EvalSymlinks(filepath.Join(dir, "ipsec"))
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return path
}

// runCharon is what the container does that runs charon.
func runCharon(dir string) error {
	if err := errors.Join(
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("tmpfs", "/run", "tmpfs", syscall.MS_RDONLY, ""),
	); err != nil {
		return err
	}
	log := funcr.New(func(prefix, args string) { fmt.Fprintln(os.Stderr, dir, prefix, args) },
		funcr.Options{Verbosity: verbosity()})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return ipsec.Charon{Dir: dir, Program: "/usr/sbin/charon-systemd",
		Implementation: ipsec.Implementation(*esp), Patience: *hangPatience, Log: log}.Run(ctx)
}

// verbosity is 1 where somebody looks at what charon says.
func verbosity() int {
	if testing.Verbose() {
		return 1
	}
	return 0
}

// withIPsec starts, on machines whose agents do not run yet, what runs charon.
func withIPsec(t *testing.T, machines ...*machine) {
	t.Helper()
	for _, m := range machines {
		m.endIPsec = m.runIPsec(t)
	}
}

// runIPsec starts what runs charon on a machine, with a directory of its own, which the next agent uses, and returns a
// function that ends it, as the end of the test does.
func (m *machine) runIPsec(t *testing.T) (end func()) {
	t.Helper()
	m.ipsecPods++
	dir, link := m.path(fmt.Sprintf("ipsec-%d", m.ipsecPods)), m.path("ipsec")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	wait := cmp.Or(m.patience, time.Minute) * time.Duration(*slow)
	c := exec.CommandContext(context.WithoutCancel(t.Context()), "nsenter", "-t", fmt.Sprint(m.holder.Process.Pid), "-n",
		self, "-charon", dir, "-esp", *esp, "-patience", wait.String(), fmt.Sprintf("-test.v=%t", testing.Verbose()))
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	by := func(s syscall.Signal) func() {
		return func() {
			once.Do(func() {
				_ = c.Process.Signal(s)
				if err := c.Wait(); err != nil && s != syscall.SIGKILL {
					t.Errorf("%s: what runs charon ended with %v", m.name, err)
				}
			})
		}
	}
	end, m.killIPsec = by(syscall.SIGTERM), by(syscall.SIGKILL)
	t.Cleanup(end)
	return end
}

// charon is the process of charon on a machine; 0 while there is none.
func (m *machine) charon(t *testing.T) int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "pgrep", "-x", "charon-systemd").Output()
	if err != nil {
		return 0
	}
	for pid := range strings.FieldsSeq(string(out)) {
		env, err := os.ReadFile("/proc/" + pid + "/environ")
		if err == nil && strings.Contains(string(env), m.path("ipsec")) {
			n, _ := strconv.Atoi(pid)
			return n
		}
	}
	return 0
}

// killCharon of a machine.
func (m *machine) killCharon(t *testing.T) { m.signalCharon(t, syscall.SIGKILL) }

// signalCharon of a machine, which has to have one, and return its process: none would be all that the tests have
// started.
func (m *machine) signalCharon(t *testing.T, signal syscall.Signal) int {
	t.Helper()
	pid := m.charon(t)
	if pid == 0 {
		t.Fatalf("%s: expected a charon to send %s to, found none", m.name, signal)
	}
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatalf("%s: send %s to charon: %v", m.name, signal, err)
	}
	return pid
}

// established is with how many peers charon of a machine has associations; 0 while it does not answer.
func (m *machine) established() int {
	s, err := vici.NewSession(vici.WithSocketPath(filepath.Join(m.path("ipsec"), "vici.sock")))
	if err != nil {
		return 0
	}
	defer func() { _ = s.Close() }()
	messages, err := s.StreamedCommandRequest("list-sas", "list-sa", nil)
	if err != nil {
		return 0
	}
	peers := map[string]bool{}
	for _, all := range messages {
		for _, name := range all.Keys() {
			ike, _ := all.Get(name).(*vici.Message)
			if ike == nil || ike.Get("state") != "ESTABLISHED" {
				continue
			}
			if children, _ := ike.Get("child-sas").(*vici.Message); children != nil && len(children.Keys()) > 0 {
				peers[name] = true
			}
		}
	}
	return len(peers)
}

// rekey has charon of a machine replace its security associations, of IKE and of what IKE has made.
func (m *machine) rekey(t *testing.T) {
	t.Helper()
	s, err := vici.NewSession(vici.WithSocketPath(filepath.Join(m.path("ipsec"), "vici.sock")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, kind := range []string{"child", "ike"} {
		peer := "sl-" + hex.EncodeToString(m.peer(t))
		request := vici.NewMessage()
		name := peer
		if kind == "child" {
			name = "ula"
		}
		if err := request.Set(kind, name); err != nil {
			t.Fatal(err)
		}
		answer, err := s.CommandRequest("rekey", request)
		if err == nil {
			err = answer.Err()
		}
		if err != nil || answer.Get("matches") == "0" {
			t.Fatalf("rekey %s: %v, %v", kind, err, answer)
		}
	}
}

// peer is the public key of the other cluster's one gateway, as the machine was told it.
func (m *machine) peer(t *testing.T) []byte {
	t.Helper()
	var o node.Objects
	if err := m.read("cluster.json", &o); err != nil {
		t.Fatal(err)
	}
	key, err := base64.StdEncoding.DecodeString(o.Peering.Spec.RemoteClusters[0].Endpoints[0].PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// pairByIPsec is a network of two clusters with a gateway and a worker each, whose gateways have charon beside them.
func pairByIPsec(t *testing.T, cables map[string]v1alpha1.CableDriver, before ...func(*network)) *network {
	t.Helper()
	n := withoutMachines(t)
	n.gw1 = n.newMachine(t, "gw1", "c1", 1, "10.8.0", "fd08:0:0:0")
	n.worker1 = n.newMachine(t, "worker1", "c1", 2, "10.8.1", "fd08:0:0:1")
	n.gw2 = n.newMachine(t, "gw2", "c2", 3, "10.9.0", "fd09:0:0:0")
	n.worker2 = n.newMachine(t, "worker2", "c2", 6, "10.9.2", "fd09:0:0:2")
	n.cables = cables
	for _, f := range before {
		f(n)
	}
	withIPsec(t, n.gw1, n.gw2)
	n.tell(t, v1alpha1.MemberActive)
	for _, m := range n.all() {
		m.start(t)
		m.forwardsItsPods(t)
	}
	n.looksForIPsec(t)
	n.run(t, "nft add chain bridge clear shut '{ type filter hook prerouting priority 1; }'")
	return n
}

// looksForIPsec has the underlay count what is of cables by IPsec, encrypted or not.
func (n *network) looksForIPsec(t *testing.T) {
	t.Helper()
	n.run(t, `nft add table bridge clear; nft add chain bridge clear c '{ type filter hook prerouting priority 0; }'
		nft add rule bridge clear c udp dport '{ 4535, 4536 }' counter comment clear
		nft add rule bridge clear c ip6 saddr fd51::/16 counter comment clear6
		nft add rule bridge clear c udp dport 4534 counter comment sealed`)
}

// TestACharonThatHangsIsEnded, and another one is started, which makes what it had made anew.
func TestACharonThatHangsIsEnded(t *testing.T) {
	t.Parallel()
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{"c1": byIPsec, "c2": byIPsec}, func(n *network) {
		n.gw1.patience = 5 * time.Second
	})
	n.sendBy(t, "sl-ci0", byIPsec)
	stopped := n.gw1.signalCharon(t, syscall.SIGSTOP)
	eventually(t, 30*time.Second, "another charon", func() bool {
		now := n.gw1.charon(t)
		return now != 0 && now != stopped
	})
	n.sendBy(t, "sl-ci0", byIPsec)
	eventually(t, 30*time.Second, "packets, and nothing to say", func() bool {
		c := n.gw1.tunnel()
		return c.Status == v1alpha1.ConnectionConnected && c.Reason == "" && n.worker1.pings(n.worker2.pods+".10", "")
	})
	// One that answers is left alone.
	now := n.gw1.charon(t)
	time.Sleep(2 * n.gw1.patience)
	if n.gw1.charon(t) != now {
		t.Error("charon was ended though it answers")
	}
	n.sealed(t)
}

// sealed fails the test if anything of cables by IPsec is on the underlay that is not encrypted.
func (n *network) sealed(t *testing.T) {
	t.Helper()
	list := func() *exec.Cmd { return n.command("nft list table bridge clear") }
	if counted(t, list(), "sealed") == 0 {
		t.Error("no packet of IPsec was seen: this could not fail")
	}
	if c := counted(t, list(), "clear") + counted(t, list(), "clear6"); c > 0 {
		t.Errorf("%d packets left in clear", c)
	}
}

// TestCablesChangeToIPsecAndBack under traffic: WireGuard carries until IPsec answers, and nothing is lost. New
// associations, and agents that end, cost nothing either.
func TestCablesChangeToIPsecAndBack(t *testing.T) {
	t.Parallel()
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{})
	n.sendBy(t, "sl-c0", v1alpha1.CableWireGuard)
	f := newTraffic(t, n.worker1, n.worker2)
	f.stretch.lasts(t, 500*time.Millisecond)
	f.whole(t, "by WireGuard")

	n.reachBy(t, byIPsec, "c1")
	eventually(t, 20*time.Second, "gw1 says that ipsec is silent", func() bool {
		c := n.gw1.tunnel()
		return c.Reason == v1alpha1.ReasonCableSilent && c.Active && c.Cable == v1alpha1.CableWireGuard
	})
	n.reachBy(t, byIPsec, "c2")
	n.sendBy(t, "sl-ci0", byIPsec)
	f.stretch.lasts(t, time.Second)
	f.whole(t, "to IPsec")
	for _, to := range []string{n.worker2.pods + ".10", n.worker2.pods6 + "::10"} {
		size := map[bool]int{true: 1330 - 40 - 8, false: 1330 - 20 - 8}[strings.Contains(to, ":")]
		out, err := within(n.worker1.pod, fmt.Sprintf("ping -c2 -W2 -i0.2 -M do -s %d %s", size, to)).CombinedOutput()
		if err != nil {
			t.Errorf("packets of full size: %v\n%s", err, out)
		}
	}

	f.begin()
	for i := range 4 {
		[]*machine{n.gw1, n.gw2}[i%2].rekey(t)
		f.stretch.lasts(t, time.Duration(i+1)*500*time.Millisecond)
	}
	f.whole(t, "new associations")

	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		n.gw2.stop(t, s)
		n.gw2.start(t)
		n.sendBy(t, "sl-ci0", byIPsec)
	}
	f.stretch.lasts(t, 500*time.Millisecond)
	f.whole(t, "an agent ends and starts")
	n.sealed(t)

	n.reachBy(t, v1alpha1.CableWireGuard, "c1")
	eventually(t, 20*time.Second, "gw1 sends by WireGuard", func() bool { return n.gw1.carries("10.9.0.0/16", "sl-c0") })
	n.reachBy(t, "", "c2")
	n.sendBy(t, "sl-c0", v1alpha1.CableWireGuard)
	f.whole(t, "to WireGuard")
	for _, m := range n.gateways() {
		eventually(t, 20*time.Second, "no cable by IPsec is left on "+m.name, func() bool {
			return m.charon(t) == 0 && m.command(`! ip -o link | grep -q 'sl-ci\|ipsec0\|sealane-esp' &&
				[ -z "$(ip xfrm state; ip xfrm policy)" ]`).Run() == nil
		})
	}
}

// TestOnlyIPsecCarriesWhatItIsToCarry: a pair that is to be reached by IPsec is by nothing else, from the first packet
// on, whatever is wrong with it, and by IPsec again when that is mended.
func TestOnlyIPsecCarriesWhatItIsToCarry(t *testing.T) {
	t.Parallel()
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{"c1": byIPsec, "c2": byIPsec}, func(n *network) {
		n.gw1.patience = 10 * time.Minute // with a charon that is stopped here
	})
	n.sendBy(t, "sl-ci0", byIPsec)
	f := newTraffic(t, n.worker1, n.worker2)
	again := func(what string, a allowed) {
		t.Helper()
		n.sendBy(t, "sl-ci0", byIPsec)
		f.stretch.lasts(t, 500*time.Millisecond)
		f.stretch.check(t, what, a)
		f.begin()
	}
	silent := func(why string) {
		t.Helper()
		eventually(t, 20*time.Second, why, func() bool {
			c := n.gw1.tunnel()
			return c.Status == v1alpha1.ConnectionError && c.Cable == byIPsec && n.gw1.carries("10.9.0.0/16", "sl-ci0")
		})
		if n.worker1.pings(n.worker2.pods+".10", "") {
			t.Errorf("%s: packets arrive all the same", why)
		}
	}

	// Without charon, for as long as there are keys.
	goesOn := func(why string) {
		t.Helper()
		if !espOfKernel() {
			silent(why)
			return
		}
		eventually(t, 20*time.Second, why, func() bool {
			c := n.gw1.tunnel()
			return c.Status == v1alpha1.ConnectionConnected && c.Cable == byIPsec && c.Reason == v1alpha1.ReasonKeysStay
		})
		if !n.worker1.pings(n.worker2.pods+".10", "") {
			t.Errorf("%s: packets do not arrive, though the kernel encrypts", why)
		}
	}

	// A third cluster publishes a key that yields no secret with anybody.
	n.others = []v1alpha1.RemoteCluster{{Name: "c0", Cable: byIPsec, Networks: v1alpha1.Networks{
		PodCIDRs: []string{"10.7.0.0/16"}}, Endpoints: []v1alpha1.Endpoint{{Gateway: "gw0", Slot: 0, MTU: 1330,
		PublicKey: base64.StdEncoding.EncodeToString(append([]byte{1}, make([]byte, 31)...))}}}}
	n.tellSome(t, v1alpha1.MemberActive, n.gw1, n.worker1)
	eventually(t, 20*time.Second, "gw1 says that it has no secret", func() bool {
		return strings.Contains(n.gw1.tunnels()["c0"].Message, "pre-shared key")
	})
	for _, m := range n.gateways() {
		m.killCharon(t)
		// Whichever of the two keys is the smaller, and its gateway the one that begins.
		most := allowed{lost: 150, outage: 1500 * time.Millisecond}
		if espOfKernel() {
			most = allowed{lost: 10, outage: 100 * time.Millisecond}
		}
		again("charon of "+m.name+" is killed", most)
	}

	n.others = nil
	n.tellSome(t, v1alpha1.MemberActive, n.gw1, n.worker1)

	// While charon hangs, its agent does whatever needs no charon, and another agent does.
	stopped := n.gw1.signalCharon(t, syscall.SIGSTOP)
	// Charon is given 3 s for an answer: by then it has been asked twice.
	for begin := time.Now(); time.Since(begin) < 8*time.Second; {
		n.gw1.run(t, "ip route del blackhole 10.99.0.0/16 table 5100")
		took := eventually(t, 20*time.Second, "gw1 repairs a route", func() bool {
			return n.gw1.command("ip route show table 5100 | grep -q 'blackhole 10.99.0.0/16'").Run() == nil
		})
		if most := 2 * time.Second * time.Duration(*slow); took > most {
			t.Errorf("gw1 repaired a route in %s while charon hangs, want %s at most", took, most)
		}
	}
	goesOn("charon hangs")
	n.gw1.stop(t, syscall.SIGKILL)
	n.gw1.start(t)
	goesOn("charon hangs still")
	if err := syscall.Kill(stopped, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	n.sendBy(t, "sl-ci0", byIPsec)
	f.begin()

	// A NAT before gw1 forgets what it translated, and begins again with another port.
	rebind := func(port int) {
		t.Helper()
		n.run(t, fmt.Sprintf(`nft -f - <<-END
			flush chain bridge clear shut
			add rule bridge clear shut ether daddr %[4]s udp dport { 4534, 41000, 41999 } udp dport != %[3]d drop
			add rule bridge clear shut ip saddr %[1]s udp sport 4534 udp sport set %[3]d
			add rule bridge clear shut ip daddr %[1]s udp dport %[3]d udp dport set 4534
			add rule bridge clear shut ip6 saddr %[2]s udp sport 4534 udp sport set %[3]d
			add rule bridge clear shut ip6 daddr %[2]s udp dport %[3]d udp dport set 4534
			END`, n.gw1.ip, n.gw1.ip6, port, strings.TrimSpace(n.gw1.run(t, `ip -o link show eth0 |
			grep -o 'ether [0-9a-f:]*' | cut -d ' ' -f 2`))))
		eventually(t, 20*time.Second, "gw1 is not answered, or followed", func() bool {
			return n.gw1.tunnel().Status == v1alpha1.ConnectionError ||
				espOfKernel() && strings.HasSuffix(n.gw2.tunnel().Address, ":"+strconv.Itoa(port))
		})
	}
	// The end that begins finds it silent for 3 s, and the other one, which alone gets through, for 2 s more. The kernel
	// notices where packets come from.
	rebind(41000)
	again("behind a NAT", allowed{lost: 800, outage: 8 * time.Second})
	rebind(41999)
	again("the NAT forgets", allowed{lost: 800, outage: 8 * time.Second})

	n.run(t, "nft flush chain bridge clear shut; nft add rule bridge clear shut udp dport 4534 drop")
	silent("IPsec is shut")
	n.run(t, "nft flush chain bridge clear shut")
	n.sendBy(t, "sl-ci0", byIPsec)

	// Of another private key, gw2 would have another secret for the same public keys.
	if err := os.WriteFile(n.gw2.path("othersecret"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.gw2.stop(t, syscall.SIGKILL)
	n.gw2.killCharon(t)
	n.gw2.start(t)
	if espOfKernel() { // what it has goes on until it is an hour old
		eventually(t, 20*time.Second, "gw2 says that its keys stay", func() bool {
			c := n.gw2.tunnel()
			return c.Status == v1alpha1.ConnectionConnected && c.Reason == v1alpha1.ReasonKeysStay
		})
		n.gw2.run(t, "ip xfrm state flush")
	}
	silent("the secrets differ")
	eventually(t, 20*time.Second, "gw1 says so", func() bool {
		return n.gw1.tunnel().Reason == v1alpha1.ReasonNoHandshake
	})
	if err := os.Remove(n.gw2.path("othersecret")); err != nil {
		t.Fatal(err)
	}
	n.gw2.stop(t, syscall.SIGKILL)
	n.gw2.killCharon(t)
	eventually(t, 20*time.Second, "the next charon has a link, before there is an agent", func() bool {
		link := "ipsec0"
		if espOfKernel() {
			link = "sealane-esp"
		}
		return n.gw2.command("ip -o link show dev "+link+" up | grep -q .").Run() == nil
	})
	n.gw2.start(t)
	n.sendBy(t, "sl-ci0", byIPsec)
	if !n.worker1.pings(n.worker2.pods+".10", "") {
		t.Error("packets do not arrive though all is well")
	}
	n.sealed(t)
}

// testKeys are those of a machine. With a file named othersecret, its secrets are others than its peers have.
type testKeys struct {
	*cable.Keys
	dir string
}

func (k testKeys) Secret(own, peer plan.PeerID) ([]byte, error) {
	secret, err := k.Keys.Secret(own, peer)
	if _, missing := os.Stat(filepath.Join(k.dir, "othersecret")); err == nil && missing == nil {
		secret[0] ^= 1
	}
	return secret, err
}
