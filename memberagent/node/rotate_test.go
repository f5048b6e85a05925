// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/tun/tuntest"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/cable"
)

// relay stands for Karmada: it tells every cluster what the gateways publish of their keys.
type relay struct {
	n *network
	// tell every machine its cluster's objects.
	tell func()
	mu   sync.Mutex
	stop context.CancelFunc
	done chan struct{}
}

func (n *network) passedOn(t *testing.T) *relay {
	t.Helper()
	return n.passedOnBy(t, func() { n.tell(t, v1alpha1.MemberActive) })
}

// passedOnBy is passedOn for clusters with other objects.
func (n *network) passedOnBy(t *testing.T, tell func()) *relay {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &relay{n: n, tell: tell, stop: stop, done: make(chan struct{})}
	n.keys, n.deaf = map[string]v1alpha1.PeeringKeys{}, map[*machine]bool{}
	go func() {
		defer close(r.done)
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				r.pass(t)
			}
		}
	}()
	return r
}

func (r *relay) close() {
	r.stop()
	<-r.done
}

// pass on what has changed.
func (r *relay) pass(t *testing.T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	news := false
	for _, m := range r.n.gateways() {
		var s v1alpha1.GatewayStatus
		if m.read("status.json", &s) != nil || s.Endpoint == nil {
			continue
		}
		if m.published == nil || m.published.PublicKey != s.Endpoint.PublicKey ||
			m.published.NextPublicKey != s.Endpoint.NextPublicKey ||
			m.published.IPsecPublicKey != s.Endpoint.IPsecPublicKey {
			m.published, news = s.Endpoint, true
		}
	}
	if news {
		r.tell()
	}
}

// ask clusters for new keys, from now on, and return from when.
func (r *relay) ask(t *testing.T, clusters ...string) time.Time {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	at := metav1.NewTime(time.Now().Truncate(time.Second).Add(time.Second))
	for _, c := range clusters {
		if last := r.n.keys[c].NotBefore; last != nil && !last.Before(&at) {
			at = metav1.NewTime(last.Add(time.Second))
		}
		r.n.keys[c] = v1alpha1.PeeringKeys{NotBefore: &at}
	}
	r.tell()
	return at.Time
}

// deafen keeps a machine from hearing anything, or lets it hear again.
func (r *relay) deafen(t *testing.T, m *machine, deaf bool) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n.deaf[m] = deaf
	r.tell()
}

func (n *network) gateways() []*machine {
	return slices.DeleteFunc([]*machine{n.gw1, n.gw2, n.gw3, n.gw4}, func(m *machine) bool { return m == nil })
}

// keyStatus is what a gateway says of its keys; the zero value if nothing.
func (m *machine) keyStatus() v1alpha1.GatewayKeys {
	var s v1alpha1.GatewayStatus
	if m.read("status.json", &s) != nil || s.Keys == nil {
		return v1alpha1.GatewayKeys{}
	}
	return *s.Keys
}

// rotated says whether a gateway has one key, which was made when it was asked for or later.
func (m *machine) rotated(asked time.Time) bool {
	k := m.keyStatus()
	return k.Phase == v1alpha1.KeyCurrent && !k.MadeAt.Time.Before(asked.Truncate(time.Second))
}

func (m *machine) privateKey(t *testing.T) wgtypes.Key {
	t.Helper()
	key, problem, err := cable.LoadKey(string(m.directory))
	if err != nil || problem != "" {
		t.Fatal(problem, err)
	}
	return key
}

// strayDatagrams of a flow may be lost in the time of a test, for a busy machine loses one now and then though nothing
// happens. A cable that changes under its traffic loses tens.
const strayDatagrams = 2

// traffic of both kinds, both families and both directions between the pods of two machines.
type traffic struct {
	flows   []*flow
	stretch stretch
}

func newTraffic(t *testing.T, a, b *machine) *traffic {
	t.Helper()
	out := &traffic{}
	for i, ends := range [][2]*machine{{a, b}, {b, a}} {
		for _, host := range []string{ends[1].pods + ".10", ends[1].pods6 + "::10"} {
			eventually(t, 20*time.Second, "a path to "+host, func() bool {
				return within(ends[0].pod, "ping -c1 -W1 "+host).Run() == nil
			})
			address := net.JoinHostPort(host, fmt.Sprint(7100+i))
			out.flows = append(out.flows, udpFlow(t, ends[0].pod, ends[1].pod, address, address),
				tcpFlow(t, ends[0].pod, ends[1].pod, address, address))
		}
	}
	out.begin()
	return out
}

func (f *traffic) begin() { f.stretch = begin(f.flows) }

// whole fails the test if anything was lost since it began.
func (f *traffic) whole(t *testing.T, what string) {
	t.Helper()
	f.stretch.check(t, what, allowed{lost: strayDatagrams, outage: time.Second})
	f.begin()
}

// TestKeysAreReplacedWithoutLoss, with one gateway in each cluster and with two, by one cluster and by both at once.
func TestKeysAreReplacedWithoutLoss(t *testing.T) {
	t.Parallel()
	for _, gateways := range []string{"one gateway", "two gateways"} {
		t.Run(gateways, func(t *testing.T) {
			t.Parallel()
			var n *network
			if gateways == "one gateway" {
				n = newNetwork(t)
				n.worker2 = n.newMachine(t, "worker2", "c2", 6, "10.9.2", "fd09:0:0:2")
				n.tell(t, v1alpha1.MemberActive)
				n.worker2.start(t)
				for _, m := range n.all() {
					m.forwardsItsPods(t)
				}
			} else {
				n = highlyAvailable(t)
			}
			r := n.passedOn(t)
			defer r.close()
			f := newTraffic(t, n.worker1, n.worker2)
			f.stretch.lasts(t, 3*time.Second)
			f.whole(t, "nothing happens")
			before := map[*machine]wgtypes.Key{}
			for _, clusters := range [][]string{{"c1"}, {"c1", "c2"}} {
				for _, m := range n.gateways() {
					before[m] = m.privateKey(t)
				}
				f.begin()
				asked, began := r.ask(t, clusters...), time.Now()
				eventually(t, 2*time.Minute, strings.Join(clusters, " and ")+" have new keys", func() bool {
					return !slices.ContainsFunc(n.gateways(), func(m *machine) bool {
						return slices.Contains(clusters, m.cluster) && !m.rotated(asked)
					})
				})
				t.Logf("%v: took %s", clusters, time.Since(began))
				for _, m := range n.gateways() {
					if changed := m.privateKey(t) != before[m]; changed != slices.Contains(clusters, m.cluster) {
						t.Errorf("%s: another key: %t", m.name, changed)
					}
					eventually(t, 20*time.Second, "no cable with a next key is left on "+m.name, func() bool {
						return m.command("! ip -o link | grep -q -e sl-c16 -e sl-c17").Run() == nil
					})
				}
				f.whole(t, strings.Join(clusters, " and "))
			}
		})
	}
}

// TestKeysOfAMeshAreReplacedWithoutLoss: the link between meshed nodes has one key, and others hear of the next one
// when it is there. What the gateways' nodes send to each other's pods straight goes by the gateways meanwhile.
func TestKeysOfAMeshAreReplacedWithoutLoss(t *testing.T) {
	t.Parallel()
	n := meshedNetwork(t)
	r := n.passedOn(t)
	defer r.close()
	f := newTraffic(t, n.gw1, n.worker2)
	f.flows = append(f.flows, newTraffic(t, n.worker1, n.gw2).flows...)
	for _, clusters := range [][]string{{"c1"}, {"c1", "c2"}} {
		n.settledMesh(t)
		before := n.gw1.privateKey(t)
		f.begin()
		asked := r.ask(t, clusters...)
		eventually(t, 2*time.Minute, strings.Join(clusters, " and ")+" have new keys", func() bool {
			return n.gw1.rotated(asked) && (len(clusters) == 1 || n.gw2.rotated(asked))
		})
		if n.gw1.privateKey(t) == before {
			t.Error("the key is the same")
		}
		n.settledMesh(t)
		f.whole(t, strings.Join(clusters, " and "))
	}
}

// TestAStolenKeyIsUseless: who has the key that a gateway had before gets no handshake, at any port of the peers. Who
// has the present one does, or this could not fail.
func TestAStolenKeyIsUseless(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	r := n.passedOn(t)
	defer r.close()
	eventually(t, time.Minute, "connected", n.gw1.connected)
	stolen := n.gw1.privateKey(t)
	asked := r.ask(t, "c1")
	eventually(t, 2*time.Minute, "a new key", func() bool { return n.gw1.rotated(asked) })
	thief := n.newMachine(t, "thief", "c9", 77, "10.77.0", "fd77:0:0:0")
	peer := n.gw2.privateKey(t).PublicKey()
	ports := []string{n.gw2.ip + ":4500", n.gw2.ip + ":4516"}
	if at := handshakes(t, thief, stolen, peer, 7*time.Second, ports...); at != "" {
		t.Error("the former key is good for a handshake at", at)
	}
	if handshakes(t, thief, n.gw1.privateKey(t), peer, 20*time.Second*time.Duration(*slow), ports[0]) == "" {
		t.Error("the present key is good for no handshake either")
	}
}

// quietTUN never says that it is up, which would open the device's sockets in the network namespace of another thread.
type quietTUN struct {
	tun.Device
	events chan tun.Event
}

func (q quietTUN) Events() <-chan tun.Event { return q.events }

// handshakes gives a machine a WireGuard device for each endpoint of a peer, with a private key, and returns the first
// endpoint that one gets a handshake from in time; empty if none does.
func handshakes(t *testing.T, m *machine, key, peer wgtypes.Key, patience time.Duration, endpoints ...string) string {
	t.Helper()
	devices := map[string]*device.Device{}
	for _, endpoint := range endpoints {
		d := device.NewDevice(quietTUN{tuntest.NewChannelTUN().TUN(), make(chan tun.Event)}, conn.NewDefaultBind(),
			device.NewLogger(device.LogLevelSilent, ""))
		defer d.Close()
		devices[endpoint] = d
		inNetworkOf(t, m.holder, func() error {
			if err := d.IpcSet(fmt.Sprintf("private_key=%s\npublic_key=%s\nendpoint=%s\npersistent_keepalive_interval=1\n",
				hex.EncodeToString(key[:]), hex.EncodeToString(peer[:]), endpoint)); err != nil {
				return err
			}
			return d.Up()
		})
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		for endpoint, d := range devices {
			state, err := d.IpcGet()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(state, "last_handshake_time_sec=") && !strings.Contains(state, "last_handshake_time_sec=0\n") {
				return endpoint
			}
		}
	}
	return ""
}

// TestKeysAreReplacedInSpiteOfFaults: a peer that hears of nothing for long, agents that are killed, an API server that
// answers nothing, and requests that follow each other: each ends with the key that was asked for last.
func TestKeysAreReplacedInSpiteOfFaults(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	r := n.passedOn(t)
	defer r.close()
	eventually(t, time.Minute, "traffic", func() bool { return n.worker1.pings("10.9.0.10", "") })
	phase := func(m *machine, want v1alpha1.KeyPhase) func() bool {
		return func() bool { return m.keyStatus().Phase == want }
	}
	passes := func(what string) {
		t.Helper()
		eventually(t, 15*time.Second, "traffic: "+what, func() bool { return n.worker1.pings("10.9.0.10", "") })
	}

	// c2 is not told of the next key: both go on with the former one, and the gateway says for whom it waits.
	r.deafen(t, n.gw2, true)
	first := n.gw1.privateKey(t)
	asked := r.ask(t, "c1")
	eventually(t, 20*time.Second, "offered", phase(n.gw1, v1alpha1.KeyOffered))
	if k := n.gw1.keyStatus(); !slices.Equal(k.Waiting, []string{"c2/gw2"}) || k.Peers != 1 || k.Moved != 0 {
		t.Errorf("expected to wait for c2/gw2, found %+v", k)
	}
	var s v1alpha1.GatewayStatus
	if err := n.gw1.read("status.json", &s); err != nil {
		t.Fatal(err)
	}
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.GatewayKeyCurrent)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonKeyOffered ||
		!strings.Contains(c.Message, "waiting for c2/gw2") {
		t.Errorf("condition %+v", c)
	}
	var next string // published a round after the phase is
	eventually(t, 20*time.Second, "the next key is published", func() bool {
		if n.gw1.read("status.json", &s) == nil && s.Endpoint != nil {
			next = s.Endpoint.NextPublicKey
		}
		return next != ""
	})

	// The agent is killed, twice: the next key is the same as before.
	for range 2 {
		n.gw1.stop(t, syscall.SIGKILL)
		n.gw1.start(t)
		passes("an agent was killed while its key was offered")
	}
	time.Sleep(7 * time.Second) // longer than a step takes for which there is nobody to wait
	if n.gw1.privateKey(t) != first || !phase(n.gw1, v1alpha1.KeyOffered)() {
		t.Errorf("the key was replaced though c2 has not moved: %+v", n.gw1.keyStatus())
	}

	// It is asked for again, while nobody can be told anything by its API server.
	if err := os.WriteFile(n.gw1.path("unanswered"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	asked = r.ask(t, "c1")
	r.deafen(t, n.gw2, false)
	eventually(t, 20*time.Second, "c2 uses the next key", func() bool { return n.gw2.carries("10.8.0.0/16", "sl-c16") })
	passes("with the next key")
	_ = os.Remove(n.gw1.path("unanswered"))
	eventually(t, time.Minute, "the first new key",
		func() bool { return n.gw1.privateKey(t).PublicKey().String() == next })

	// c2's agent is killed while c1's new key is promoted.
	n.gw2.stop(t, syscall.SIGKILL)
	n.gw2.start(t)
	passes("an agent was killed while a key was promoted")
	eventually(t, 2*time.Minute, "the second new key", func() bool { return n.gw1.rotated(asked) })
	if now := n.gw1.privateKey(t); now == first || now.PublicKey().String() == next {
		t.Error("the second request has made no other key")
	}
	passes("at the end")
	eventually(t, 20*time.Second, "connected", func() bool { return n.gw1.connected() && n.gw2.connected() })
	for _, m := range n.gateways() {
		eventually(t, 20*time.Second, "nothing is left on "+m.name, func() bool {
			return !bytes.Contains([]byte(m.run(t, "ip -o link")), []byte("sl-c16")) && !fileExists(m.path("wireguard.next.key"))
		})
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
