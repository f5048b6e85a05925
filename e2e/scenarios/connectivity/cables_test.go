// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/suite"
)

// reachBy sets spec.cables of the ClusterSet, and waits until c1 and c2 send to each other by a cable.
func reachBy(t *testing.T, cables, want string) {
	t.Helper()
	suite.SetClusterSet(t, `{"cables":`+cables+`}`)
	goesBy(t, "c1", "c2", want)
}

// goesBy waits until the gateways of two clusters say that they send to each other by a cable.
func goesBy(t *testing.T, one, other, want string) {
	t.Helper()
	for cluster, remote := range map[string]string{one: other, other: one} {
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			got, err := suite.TryKubectl(ctx, "--context", cluster, "get", "gateways", "-o",
				`jsonpath={range .items[*].status.connections[?(@.cluster=="`+remote+`")]}{.cable} {.active} {.status}{end}`)
			if expected := want + " true Connected"; err == nil && got != expected {
				err = fmt.Errorf("%s to %s: expected %q, found %q", cluster, remote, expected, got)
			}
			return err
		})
	}
}

// TestAPairByVXLANAndBack: an administrator has two clusters reach each other without encryption, and with it again,
// while a connection between them goes on. Every way that a packet can take works by VXLAN, too, and what goes to other
// clusters is encrypted meanwhile.
func TestAPairByVXLANAndBack(t *testing.T) {
	const pair = `[{"clusters":[{"clusterNames":["c1"]},{"clusterNames":["c2"]}],"driver":"vxlan","unencrypted":true}]`
	suite.SetClusterSetAfter(t, `{"cables":null}`)
	suite.ConnectionSurvives(t, time.Second, suite.Undisturbed, func() { reachBy(t, pair, "vxlan") })
	suite.Contains(t, suite.Plugin(t, "show", "connections", "-C", "c1"), "NOT ENCRYPTED, by vxlan")
	everyWayBesideWireGuard(t)
	suite.ConnectionSurvives(t, time.Second, suite.Undisturbed, func() { reachBy(t, "null", "wireguard") })
}

// TestAPairByIPsecAndBack: an administrator has two clusters reach each other by IPsec, and by WireGuard again, while a
// connection between them goes on. Every way that a packet can take works by it, and its associations count what does,
// while another pair goes by WireGuard.
func TestAPairByIPsecAndBack(t *testing.T) {
	const pair = `[{"clusters":[{"clusterNames":["c1"]},{"clusterNames":["c2"]}],"driver":"ipsec"}]`
	suite.SetClusterSetAfter(t, `{"cables":null}`)
	suite.ConnectionSurvives(t, time.Second, suite.Undisturbed, func() { reachBy(t, pair, "ipsec") })
	suite.Contains(t, suite.Plugin(t, "show", "connections", "-C", "c1"), "by ipsec")
	token := suite.Scraper(t, "c1")
	var before map[string]float64
	suite.Eventually(t, suite.Patience, func(ctx context.Context) (err error) {
		before, err = associations(ctx, t, token)
		return err
	})
	everyWayBesideWireGuard(t)
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		after, err := associations(ctx, t, token)
		if err != nil {
			return err
		}
		for name, least := range map[string]float64{"established": 1, "kernel": 0, "keys_stay": 0, "rekeys_total": 0,
			"received_bytes_total": before["received_bytes_total"] + carried, "sent_bytes_total": before["sent_bytes_total"] +
				carried} {
			if got, there := after[name]; !there || got < least {
				return fmt.Errorf("sealane_node_ipsec_%s of c2 is %v, expected at least %v, of %v", name, got, least, after)
			}
		}
		if after["keys_stay"] != 0 {
			return fmt.Errorf("nothing renews the keys: %v", after)
		}
		return nil
	})
	suite.ConnectionSurvives(t, time.Second, suite.Undisturbed, func() { reachBy(t, "null", "wireguard") })
}

// carried is the least that everyWay has pass in each direction between c1 and c2: four ways lead to a server of each,
// by its pod and by its service, from pods and hosts.
const carried = 4 * 2 * 2 * suite.Body

// everyWayBesideWireGuard checks every way between c1 and c2, which do not reach each other by WireGuard: its counters
// on c1's gateway say that nothing of that went by it. What c3 sends to c1 does, as before.
func everyWayBesideWireGuard(t *testing.T) {
	t.Helper()
	received := map[string]int{}
	for _, remote := range []string{"c2", "c3"} {
		received[remote] = receivedByWireGuard(t, remote)
	}
	everyWay(t)
	goesBy(t, "c1", "c3", "wireguard")
	suite.CheckSizes(t, "c1", "client-c1-worker", "c3", "c3-gw")
	if got := receivedByWireGuard(t, "c2") - received["c2"]; got > suite.Body/4 {
		t.Errorf("%d bytes came from c2 by WireGuard, expected probes alone", got)
	}
	if got := receivedByWireGuard(t, "c3") - received["c3"]; got < 2*suite.Body {
		t.Errorf("%d bytes came from c3 by WireGuard, expected what its pod and its service sent, %d", got, 2*suite.Body)
	}
}

// receivedByWireGuard is how many bytes of a cluster's gateway c1's has received by its WireGuard.
func receivedByWireGuard(t *testing.T, remote string) (bytes int) {
	t.Helper()
	device := suite.WireGuardOf(t, "c1-gw")
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		key, err := suite.JSONPath(ctx, remote, "{.status.endpoint.publicKey}", "gateway", remote+"-gw")
		if err != nil {
			return err
		}
		peer, err := device.Peer(ctx, key)
		bytes = peer.Received
		return err
	})
	return bytes
}

// association is a metric of associations by IPsec.
var association = regexp.MustCompile(`(?m)^sealane_node_ipsec_(\w+)\{remote_cluster="([^"]*)",slot="0"\} (\S+)$`)

// associations are the metrics of those of c1's gateway with c2's, the only ones that it has.
func associations(ctx context.Context, t *testing.T, token string) (map[string]float64, error) {
	t.Helper()
	address := suite.NodeAddr("c1-gw").String() + ":9811"
	status, text, err := suite.Get(ctx, t, "c1-gw", "https", address, "/metrics", token)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d: %.2000s", status, text)
	}
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for _, m := range association.FindAllStringSubmatch(text, -1) {
		if m[2] != "c2" {
			return nil, fmt.Errorf("%s, which is reached by WireGuard, has an association", m[2])
		}
		if out[m[1]], err = strconv.ParseFloat(m[3], 64); err != nil {
			return nil, err
		}
	}
	if n := strings.Count(text, "\nsealane_node_ipsec_"); n != len(out) || n == 0 {
		return nil, fmt.Errorf("%d metrics of associations, understood %v", n, out)
	}
	return out, nil
}
