// SPDX-License-Identifier: Apache-2.0

package globalnet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/sealane"
	"github.com/sealane-io/sealane/e2e/suite"
)

// The host outside all clusters, in a network of its own with two gateways, whose addresses there no Node tells. The
// topology allows its address.
const (
	hostName    = "host" // of its network namespace, among those of the lab
	hostAddress = "192.168.77.7"
)

var lanAddresses = []string{"192.168.77.11", "192.168.77.12"}

// TestHostOutside: a host that only the gateways of one of the twins reach is exported by it, and reached by its name
// from the other twin and from the cluster that overlaps nobody. It sees the gateway that the connection came by, and
// reaches what the other twin exports with either of the gateways as next hop.
func TestHostOutside(t *testing.T) {
	exporter, twin := "g1", "g2"
	if memberSays(t, exporter, "globalScope") != string(v1alpha1.GlobalToAll) {
		exporter, twin = twin, exporter // the one that c1 knows by its block, too
	}
	startHost(t, exporter+"-gw1", exporter+"-gw2")
	s := namespace{suite.NewNamespace(t)}
	db := suite.Service(suite.Headless)
	s.Create(exporter, db, suite.EndpointSlice(db, discoveryv1.Endpoint{Addresses: []string{hostAddress},
		Hostname: ptr.To("primary")}))
	s.Export(exporter)
	global := s.globalAddresses(exporter, 1)[hostAddress]
	shown := suite.Plugin(t, "show", "globalips", "-C", exporter, "-n", s.Name)
	if row := regexp.MustCompile(regexp.QuoteMeta(global) + ` +\S+ +Host +` + s.Name + ` +web/` +
		regexp.QuoteMeta(hostAddress) + ` +InUse`); !row.MatchString(shown) {
		t.Errorf("the host with %s is not among the global addresses that are shown:\n%s", global, shown)
	}
	for _, from := range []string{twin, "c1"} {
		t.Run("from "+from, func(t *testing.T) {
			s.WaitEndpoints(from, map[string]int{exporter: 1})
			name := s.DNSName("primary", exporter)
			suite.Resolves(t, from, name, "A", global)
			suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
				a, err := suite.Ask(ctx, from, suite.ClientOf(from), "http://"+name+":8080")
				if err == nil && (a.Pod != hostName || !slices.Contains(lanAddresses, a.Client)) {
					err = fmt.Errorf("%s is answered by %q, which sees %s", name, a.Pod, a.Client)
				}
				return err
			})
		})
	}
	t.Run("to "+twin, func(t *testing.T) { fromHost(t, exporter, twin) })
}

// fromHost has the host ask a service of another cluster by its global address, with each gateway as next hop.
func fromHost(t *testing.T, exporter, twin string) {
	suite.Exported(t, twin, "whereami-cs")
	service := &v1alpha1.GlobalIngressIP{ObjectMeta: suite.Named("whereami-cs")}
	suite.WaitFor(suite.Namespace{T: t, Name: "sample"}, twin, service, func(g *v1alpha1.GlobalIngressIP) error {
		if g.Status.IP == "" {
			return errors.New("it has no global address yet")
		}
		return nil
	})
	clients := append(seenFrom(t, exporter, "", true), ofGateways)
	for _, gateway := range lanAddresses {
		ip(t, hostName, "route replace "+memberSays(t, twin, "globalCIDR")+" via "+gateway)
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			a, err := askFromHost(ctx, t, service.Status.IP+":80")
			if err != nil {
				return err
			}
			client, err := netip.ParseAddr(a.Client)
			if err != nil || a.Cluster != twin ||
				!slices.ContainsFunc(clients, func(p netip.Prefix) bool { return p.Contains(client) }) {
				return fmt.Errorf("by %s: answered by %q, which sees %s, expected %s and one of %s", gateway, a.Cluster, a.Client,
					twin, clients)
			}
			return nil
		})
	}
}

// startHost makes the host's network namespace, where it answers as whereami does, and its links to gateways, until the
// end of the test.
func startHost(t *testing.T, gateways ...string) {
	t.Helper()
	run(t, "ip", "netns", "add", suite.Lab().Netns(hostName))
	t.Cleanup(func() {
		for i := range gateways {
			ip(t, hostName, fmt.Sprintf("link del gw%d", i))
		}
		run(t, "ip", "netns", "del", suite.Lab().Netns(hostName))
	})
	ip(t, hostName, "link set lo up", "link add lan type bridge forward_delay 0", "link set lan up",
		"addr add "+hostAddress+"/24 dev lan")
	for i, gateway := range gateways {
		ip(t, hostName, fmt.Sprintf("link add gw%d type veth peer name lan0 netns %s", i, suite.Lab().Netns(gateway)),
			fmt.Sprintf("link set gw%d master lan up", i))
		ip(t, gateway, "addr add "+lanAddresses[i]+"/24 dev lan0", "link set lan0 up")
	}
	var listener net.Listener
	suite.InNetns(t, hostName, func() (err error) {
		listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp4", hostAddress+":8080")
		return err
	})
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			client, _, _ := net.SplitHostPort(r.RemoteAddr)
			_ = json.NewEncoder(w).Encode(sealane.Answer{Pod: hostName, Client: client})
		})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

// askFromHost asks a whereami server from the host, on a connection of its own.
func askFromHost(ctx context.Context, t *testing.T, address string) (sealane.Answer, error) {
	t.Helper()
	var c net.Conn
	var failed error
	suite.InNetns(t, hostName, func() error {
		c, failed = (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp4", address)
		return nil
	})
	if failed != nil {
		return sealane.Answer{}, failed
	}
	transport := &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
	if err != nil {
		return sealane.Answer{}, err
	}
	response, err := (&http.Client{Transport: transport, Timeout: 2 * time.Second}).Do(request)
	if err != nil {
		return sealane.Answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	var a sealane.Answer
	return a, json.NewDecoder(response.Body).Decode(&a)
}

// ip runs lines of ip(8) in the network namespace of a node, or of the host.
func ip(t *testing.T, node string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		run(t, "ip", append([]string{"-n", suite.Lab().Netns(node)}, strings.Fields(line)...)...)
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...).CombinedOutput(); err != nil {
		t.Errorf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}
