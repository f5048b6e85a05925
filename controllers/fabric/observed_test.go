// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// sees has a member say where it sees the first gateway of another.
func (w *walk) sees(name, cluster, ip string, port int32) {
	m := w.member(name)
	for i := range m.Report.Status.Connections {
		c := &m.Report.Status.Connections[i]
		if c.Cluster == cluster {
			c.Observed = append(c.Observed, v1alpha1.ObservedGateway{
				Gateway: w.member(cluster).Report.Status.Endpoints[0].Gateway, ObservedAddress: v1alpha1.ObservedAddress{IP: ip,
					Port: port}})
		}
	}
}

// seen is where a member is told that the first gateway of another is seen.
func (w *walk) seen(name, cluster string) string {
	var out []string
	for _, r := range w.member(name).Sent.RemoteClusters {
		if r.Name == cluster && len(r.Endpoints) > 0 {
			for _, o := range r.Endpoints[0].Observed {
				out = append(out, fmt.Sprintf("%s:%d", o.IP, o.Port))
			}
		}
	}
	return strings.Join(out, " ")
}

// all of three members are connected, but for c1 and c3.
func halfConnected() *walk {
	w := newWalk(known(1), known(2), known(3))
	w.says("c1", "c2=Connected c3=Connecting")
	w.says("c2", "c1=Connected c3=Connected")
	w.says("c3", "c1=Connecting c2=Connected")
	return w
}

// TestWhereGatewaysAreSeen: what one member sees of a second is told to a third, and holds as long as it says so.
func TestWhereGatewaysAreSeen(t *testing.T) {
	w := halfConnected()
	w.step()
	w.expect(t, "nothing is seen", w.seen("c3", "c1"), "")
	w.sees("c2", "c1", "203.0.113.1", 0)
	w.sees("c2", "c3", "203.0.113.3", 41000)
	w.expect(t, "written to", w.step(), "c1,c2,c3")
	w.expect(t, "c3 of c1", w.seen("c3", "c1"), "203.0.113.1:0")
	w.expect(t, "c1 of c3", w.seen("c1", "c3"), "203.0.113.3:41000")
	w.expect(t, "again", w.step(), "")
	if e := w.member("c1").Record.Status.Endpoints[0]; len(e.Observed) != 1 {
		t.Errorf("the record of c1 has %v", e.Observed)
	}
	end := w.silence("c2")
	w.expect(t, "c2 is not heard of, written to", w.step(), "")
	end()
	w.expect(t, "c2 is heard of, written to", w.step(), "")
	w.says("c2", "c1=Connected c3=Connected")
	w.step()
	w.expect(t, "c3 of c1, which is seen there no more", w.seen("c3", "c1"), "")
}

// TestClaimsOfWhereAGatewayIs: a member that lies adds one address, and takes away none. What it claims keeps nobody
// from a network.
func TestClaimsOfWhereAGatewayIs(t *testing.T) {
	w := halfConnected()
	w.step()
	published := fmt.Sprint(w.member("c3").Record.Status.Endpoints[0].Addresses)
	w.sees("c1", "c3", "203.0.113.3", 0)
	for i := range 100 {
		w.sees("c2", "c3", fmt.Sprintf("192.0.2.%d", i+1), int32(i))
	}
	w.sees("c3", "c3", "203.0.113.66", 0)
	w.step()
	w.expect(t, "c1 of c3", w.seen("c1", "c3"), "192.0.2.1:0 203.0.113.3:0")
	if now := fmt.Sprint(w.member("c3").Record.Status.Endpoints[0].Addresses); now != published {
		t.Errorf("addresses of c3 were %s, are %s", published, now)
	}
	for _, ip := range []string{"10.1.0.5", "10.2.0.5", "10.3.0.5", "127.0.0.1", "224.0.0.5", "fe80::1", "nobody"} {
		w := halfConnected()
		w.step()
		w.sees("c2", "c3", ip, 0)
		w.expect(t, ip+": written to", w.step(), "")
	}

	// c2 says that a gateway of c3 is seen where c4 is about to have its pods.
	w = halfConnected()
	w.step()
	w.sees("c2", "c3", "10.4.0.5", 0)
	w.step()
	w.expect(t, "c1 of c3", w.seen("c1", "c3"), "10.4.0.5:0")
	w.in.Members = append(w.in.Members, known(4))
	w.step()
	w.step()
	w.expect(t, "accepted", w.accepted(), "c1=True/Accepted c2=True/Accepted c3=True/Accepted c4=True/Accepted")
	w.expect(t, "c1 of c3", w.seen("c1", "c3"), "")
}

// TestAPairSaysWhichPortToForward, where neither end has had a handshake, and no gateway publishes an address that
// others can reach.
func TestAPairSaysWhichPortToForward(t *testing.T) {
	w := newWalk(known(1), known(2), known(3))
	message := func(from, back string) string {
		w.says("c1", "c2=Connected c3="+from)
		w.says("c2", "c1=Connected c3=Connected")
		w.says("c3", "c1="+back+" c2=Connected")
		w.sees("c2", "c1", "203.0.113.1", 0)
		w.sees("c2", "c3", "203.0.113.3", 0)
		w.step()
		return w.d.Set.UnconnectedPairs[0].Message
	}
	w.step()
	const none, lost = "Connecting/NoHandshake", "Error/ProbesLost"
	if m := message(none, none); !strings.Contains(m, "both gateways are behind NAT") ||
		!strings.Contains(m, " at c1, or UDP 4500 to ") || !strings.Contains(m, "203.0.113.1 at c1, 203.0.113.3 at c3") {
		t.Errorf("expected to be told which port to forward, found %q", m)
	}
	w.in.Cables = map[[2]string]v1alpha1.CableDriver{{"c1", "c3"}: v1alpha1.CableIPsec}
	if m := message(none, none); !strings.Contains(m, "forward UDP 4534 to ") || !strings.Contains(m, "or UDP 4534 to ") {
		t.Errorf("by IPsec: expected to be told to forward its port, found %q", m)
	}
	if m := message("Connecting/NoIPsecContainer", none); strings.Contains(m, "forward") {
		t.Errorf("without a container for IPsec: expected no port to forward, found %q", m)
	}
	w.in.Cables = nil
	if m := message(none, lost); strings.Contains(m, "forward") {
		t.Errorf("with a handshake at one end: expected no port to forward, found %q", m)
	}
	r := &w.member("c3").Report.Status.Endpoints[0]
	r.Addresses = append(r.Addresses, v1alpha1.EndpointAddress{Type: v1alpha1.AddressPublic, IP: "192.0.2.7"})
	if m := message(none, none); strings.Contains(m, "forward") {
		t.Errorf("c3 publishes an address: expected no port to forward, found %q", m)
	}
}
