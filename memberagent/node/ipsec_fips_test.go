// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/hex"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/strongswan/govici/vici"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/cable"
)

const (
	usual = v1alpha1.IPsecDefault
	fips  = v1alpha1.IPsecFIPS
)

// ipsecKey is the machine's public key of P-256.
func (m *machine) ipsecKey(t *testing.T) string {
	t.Helper()
	keys, problem, err := cable.OpenKeys(string(m.directory))
	if err != nil || problem != "" {
		t.Fatal(problem, err)
	}
	if problem, err = keys.WithIPsec(); err != nil || problem != "" {
		t.Fatal(problem, err)
	}
	return keys.IPsecPublic(keys.Current())
}

// takes tells clusters which algorithms cables by IPsec are to have.
func (n *network) takes(t *testing.T, algorithms v1alpha1.IPsecAlgorithms, clusters ...string) {
	t.Helper()
	for _, cluster := range clusters {
		n.algorithms[cluster] = algorithms
		for _, m := range n.all() {
			if m.cluster == cluster {
				n.tellSome(t, v1alpha1.MemberActive, m)
			}
		}
	}
}

// exchanged are the algorithms of all associations that a machine's charon has with its peer, as it says by list-sas:
// "AES_GCM_16/128/PRF_HMAC_SHA2_256/ECP_256 AES_GCM_16/128" of one that has not been rekeyed.
func (m *machine) exchanged(t *testing.T) []string {
	t.Helper()
	s, err := vici.NewSession(vici.WithSocketPath(filepath.Join(m.path("ipsec"), "vici.sock")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	messages, err := s.StreamedCommandRequest("list-sas", "list-sa", nil)
	if err != nil {
		t.Fatal(err)
	}
	values := func(m *vici.Message, keys ...string) string {
		var out []string
		for _, key := range keys {
			if v, ok := m.Get(key).(string); ok {
				out = append(out, v)
			}
		}
		return strings.Join(out, "/")
	}
	var out []string
	for _, message := range messages {
		ike, ok := message.Get("sl-" + hex.EncodeToString(m.peer(t))).(*vici.Message)
		if !ok || ike.Get("state") != "ESTABLISHED" {
			continue
		}
		text := values(ike, "encr-alg", "encr-keysize", "prf-alg", "dh-group")
		if children, ok := ike.Get("child-sas").(*vici.Message); ok {
			for _, key := range children.Keys() {
				if c, ok := children.Get(key).(*vici.Message); ok && c.Get("state") == "INSTALLED" {
					text += " " + values(c, "encr-alg", "encr-keysize", "integ-alg", "dh-group")
				}
			}
		}
		out = append(out, text)
	}
	return out
}

// has waits until both gateways have one association, which list-sas says to have algorithms, and say so themselves.
func (n *network) has(t *testing.T, ike, esp string) {
	t.Helper()
	for _, m := range n.gateways() {
		var found []string
		eventually(t, 30*time.Second, m.name+" has "+ike+" "+esp, func() bool {
			found = m.exchanged(t)
			said := m.tunnel().Algorithms
			want := "IKE " + ike + ", ESP " + esp
			if espOfKernel() {
				want += " by the kernel"
			}
			return len(found) == 1 && found[0] == ike+" "+esp && said == want && m.tunnel().Reason == ""
		})
	}
}

// What charon says of the two suites.
const (
	ikeUsual, ikeFIPS = "AES_GCM_16/128/PRF_HMAC_SHA2_256/CURVE_25519", "AES_GCM_16/128/PRF_HMAC_SHA2_256/ECP_256"
	espFirst          = "AES_GCM_16/128" // with keys of what IKE has exchanged
	espFIPS           = "AES_GCM_16/128/ECP_256"
)

// TestIPsecByFIPS: a gateway without a key of P-256 is not reached, and the others say so. Associations have the
// algorithms of FIPS, also those that follow, and the algorithms are changed under traffic.
func TestIPsecByFIPS(t *testing.T) {
	t.Parallel()
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{"c1": byIPsec, "c2": byIPsec}, func(n *network) {
		n.algorithms = map[string]v1alpha1.IPsecAlgorithms{"c1": fips, "c2": fips}
		n.keyless = map[*machine]bool{n.gw2: true}
	})
	eventually(t, 20*time.Second, "gw1 says that gw2 has no key", func() bool {
		c := n.gw1.tunnel()
		return c.Status != v1alpha1.ConnectionConnected && strings.Contains(c.Message, "no key of P-256")
	})
	eventually(t, 20*time.Second, "gw2 has no answer by FIPS", func() bool {
		c := n.gw2.tunnel()
		return c.Status != v1alpha1.ConnectionConnected && strings.Contains(c.Message, "ipsecAlgorithms FIPS")
	})
	// As an older agent would be: it takes the usual algorithms, and has no key.
	n.takes(t, usual, "c2")
	time.Sleep(5 * time.Second) // both have begun by then, as often as they do
	if found := append(n.gw1.exchanged(t), n.gw2.exchanged(t)...); len(found) > 0 ||
		n.worker1.pings(n.worker2.pods+".10", "") {
		t.Errorf("gateways of different algorithms have associations: %q", found)
	}
	n.keyless = nil
	n.takes(t, fips, "c1", "c2")
	n.sendBy(t, "sl-ci0", byIPsec)
	n.has(t, ikeFIPS, espFirst)
	n.gw1.rekey(t)
	n.has(t, ikeFIPS, espFIPS)

	f := newTraffic(t, n.worker1, n.worker2)
	for _, c := range []struct {
		what string
		// first hears of the change 3 s before second, or both hear at once.
		to            v1alpha1.IPsecAlgorithms
		first, second string
		ike           string
	}{
		{"c1 hears first of the usual ones", usual, "c1", "c2", ikeUsual},
		{"c1 hears first of FIPS", fips, "c1", "c2", ikeFIPS},
		{"c2 hears first of the usual ones", usual, "c2", "c1", ikeUsual},
		{"c2 hears first of FIPS", fips, "c2", "c1", ikeFIPS},
	} {
		f.begin()
		n.takes(t, c.to, c.first)
		m := n.gw1
		if c.first == "c2" {
			m = n.gw2
		}
		eventually(t, 20*time.Second, m.name+" says that it has others", func() bool {
			k := m.tunnel()
			return k.Status == v1alpha1.ConnectionConnected && k.Reason == v1alpha1.ReasonAlgorithmsDiffer &&
				!strings.Contains(k.Algorithms, c.ike)
		})
		f.stretch.lasts(t, 3*time.Second)
		f.stretch.check(t, c.what+", and the other not", allowed{lost: strayDatagrams, outage: time.Second})
		f.begin()
		n.takes(t, c.to, c.second)
		began := time.Now()
		n.has(t, c.ike, espFirst)
		t.Logf("%s: both have the others alone after %s", c.what, time.Since(began))
		f.stretch.lasts(t, time.Second)
		f.stretch.check(t, c.what, allowed{lost: strayDatagrams, outage: time.Second})
	}

	// An agent that was told while it was down begins with what the former one left in charon.
	f.begin()
	n.gw1.stop(t, syscall.SIGKILL)
	n.takes(t, usual, "c1", "c2")
	n.gw1.start(t)
	n.has(t, ikeUsual, espFirst)
	n.takes(t, fips, "c1", "c2")
	n.has(t, ikeFIPS, espFirst)
	f.stretch.lasts(t, time.Second)
	f.stretch.check(t, "an agent was down", allowed{lost: strayDatagrams, outage: time.Second})

	// A key that is gone ends what there is.
	n.keyless = map[*machine]bool{n.gw2: true}
	n.takes(t, fips, "c1")
	eventually(t, 20*time.Second, "gw1 has nothing with a gateway without a key", func() bool {
		return len(n.gw1.exchanged(t)) == 0 && strings.Contains(n.gw1.tunnel().Message, "no key of P-256")
	})
	n.sealed(t)
}

// TestKeysOfFIPSAreReplaced with those of WireGuard: each gateway has other ones of both afterwards, and what they make
// is by FIPS.
func TestKeysOfFIPSAreReplaced(t *testing.T) {
	t.Parallel()
	n := pairByIPsec(t, map[string]v1alpha1.CableDriver{"c1": byIPsec, "c2": byIPsec}, func(n *network) {
		n.algorithms = map[string]v1alpha1.IPsecAlgorithms{"c1": fips, "c2": fips}
	})
	r := n.passedOn(t)
	defer r.close()
	n.sendBy(t, "sl-ci0", byIPsec)
	n.has(t, ikeFIPS, espFirst)
	f := newTraffic(t, n.worker1, n.worker2)
	wireguard, p256 := n.gw1.privateKey(t), n.gw1.ipsecKey(t)
	f.begin()
	asked := r.ask(t, "c1")
	eventually(t, 2*time.Minute, "c1 has new keys", func() bool { return n.gw1.rotated(asked) })
	n.sendBy(t, "sl-ci0", byIPsec)
	n.has(t, ikeFIPS, espFirst)
	f.stretch.lasts(t, time.Second)
	f.stretch.check(t, "another key", allowed{lost: 1000, outage: 10 * time.Second})
	if now := n.gw1.ipsecKey(t); now == p256 || n.gw1.privateKey(t) == wireguard {
		t.Error("a key is the same as before")
	}
	n.sealed(t)
}
