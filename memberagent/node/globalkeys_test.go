// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"slices"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestKeysOfTwinsAreReplacedWithoutLoss: what gateways translate passes by another cable while a key is replaced, and
// neither a translation nor its memory is of the cable.
func TestKeysOfTwinsAreReplacedWithoutLoss(t *testing.T) {
	t.Parallel()
	n := newTwins(t, podsOfTwins())
	r := n.passedOnBy(t, func() { n.tellTwins(t, v1alpha1.MemberActive, []string{"10.7.0.10", "10.7.1.10"}) })
	defer r.close()
	for _, m := range n.all() {
		m.serve(t)
	}
	f := &traffic{}
	for i, way := range []struct {
		from, to *machine
		pod      string
		service  string
	}{{n.worker1, n.worker2, "120.2.0.21", serviceOfTwin2}, {n.worker2, n.worker1, "120.1.0.21", serviceOfTwin1}} {
		for _, to := range []string{way.pod + ":8080", way.service + ":80"} {
			eventually(t, time.Minute, "an answer from "+to, func() bool {
				_, _, err := ask(t, way.from.pod, "tcp4", to)
				return err == nil
			})
		}
		port := []string{":7100", ":7101"}[i]
		f.flows = append(f.flows, udpFlow(t, way.from.pod, way.to.pod, "10.7.1.10"+port, way.pod+port),
			tcpFlow(t, way.from.pod, way.to.pod, "10.7.1.10"+port, way.pod+port))
	}
	held, err := dialFrom(t, n.worker1.pod, "tcp4", serviceOfTwin2+":80")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Read(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	f.begin()
	f.stretch.lasts(t, 3*time.Second)
	f.whole(t, "nothing happens")
	before := map[*machine]wgtypes.Key{}
	for _, m := range n.gateways() {
		before[m] = m.privateKey(t)
	}
	asked := r.ask(t, "c1", "c2")
	eventually(t, 2*time.Minute, "both have new keys", func() bool {
		return !slices.ContainsFunc(n.gateways(), func(m *machine) bool { return !m.rotated(asked) })
	})
	for _, m := range n.gateways() {
		if m.privateKey(t) == before[m] {
			t.Errorf("%s has its key of before", m.name)
		}
	}
	f.stretch.lasts(t, 3*time.Second)
	f.whole(t, "both have new keys")
	if err := asks(held); err != nil {
		t.Errorf("a connection to a service, by the gateway's choice of a backend: %v", err)
	}
}
