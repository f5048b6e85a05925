// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestAClusterWithNetworksOfAnotherIsRefused: the one that came first keeps them, everybody who needs to know
// is told, and with other networks the newcomer is welcome.
func TestAClusterWithNetworksOfAnotherIsRefused(t *testing.T) {
	v := suite.NewVisitor(t)
	before, err := suite.RemoteClusters(t.Context(), "c2")
	if err != nil {
		t.Fatal(err)
	}
	overlapping := suite.HonestReport()
	overlapping.Networks.PodCIDRs = []string{"10.8.0.0/24"}
	suite.ConnectionSurvives(t, 3*time.Second, suite.Undisturbed, func() {
		v.Join(t, overlapping)
		words := []string{"10.8.0.0/16", "10.8.0.0/24", "c1", v.Name}
		suite.WaitContains(t, "karmada", suite.ConditionText("Accepted"), []string{"member", v.Name},
			append(words, "False/CIDROverlap")...)
		suite.WaitContains(t, "karmada", suite.ConditionText("Accepted"), []string{"member", "c1"},
			append(words, "True/Accepted")...)
		suite.WaitContains(t, "karmada", suite.ConditionText("Ready"), []string{"clusterset", "default"},
			append(words, "False/Problems")...)
		suite.Contains(t, suite.Kubectl(t, "--context", "karmada", "get", "clusterset,members", "-o", "wide"), words...)
		suite.Contains(t, suite.Plugin(t, "show", "clusterset"), v.Name)
		t.Run("and told so in its own cluster", func(t *testing.T) {
			var out string
			suite.Eventually(t, suite.Patience, func(context.Context) error {
				//nolint:contextcheck // it has the context of the test
				out = v.Kubectl(t, "get", "peering", "sealane", "-o",
					`jsonpath={.spec.conditions[?(@.type=="Accepted")].message}|{.spec.remoteClusters}`)
				for _, word := range words {
					if !strings.Contains(out, word) {
						return fmt.Errorf("expected %q in %s", word, out)
					}
				}
				return nil
			})
			if !strings.HasSuffix(out, "|[]") {
				t.Errorf("it is told of other clusters: %s", out)
			}
		})
		t.Run("and join says why", func(t *testing.T) {
			out, err := suite.TryPlugin(t.Context(), "join", v.Name, "--timeout=30s")
			if err == nil {
				t.Error("join succeeded")
			}
			suite.Contains(t, out, append(words, "refused")...)
		})
		if after, err := suite.RemoteClusters(t.Context(), "c2"); err != nil || after != before {
			t.Errorf("c2 was told %s, is told %s: %v", before, after, err)
		}
	})
	if err := v.Report(t.Context(), suite.HonestReport()); err != nil {
		t.Fatal(err)
	}
	suite.WaitContains(t, "karmada", suite.ConditionText("Accepted"), []string{"member", v.Name}, "True/Accepted")
	suite.WaitContains(t, "c2", "{.spec.remoteClusters[*].name}", []string{"peering", "sealane"}, v.Name)
	t.Run("a member that turns hostile", func(t *testing.T) { aMemberTurnsHostile(t, v) })
}

// claim is a report that must change nothing, and what is said of it.
type claim struct {
	name   string
	status v1alpha1.PeeringStatus
	words  []string
}

// claims of a hostile member; the key is that of c1's gateway, and the node one of c1's.
func claims(key, node string) []claim {
	gateway := v1alpha1.Endpoint{
		Gateway: "gw", MTU: 1420, PublicKey: "dmlzaXRvcnZpc2l0b3J2aXNpdG9ydmlzaXRvcjEyMzQ=",
		Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPrivate, IP: "192.0.2.11"}},
	}
	pods := func(cidr string) v1alpha1.PeeringStatus {
		s := suite.HonestReport()
		s.Networks.PodCIDRs = []string{cidr}
		return s
	}
	nodes := func(cidr string) v1alpha1.PeeringStatus {
		s := suite.HonestReport()
		s.NodeCIDRs = []string{cidr}
		return s
	}
	endpoint := func(change func(*v1alpha1.Endpoint)) v1alpha1.PeeringStatus {
		s, e := suite.HonestReport(), gateway
		e.Addresses = []v1alpha1.EndpointAddress{gateway.Addresses[0]}
		change(&e)
		s.Endpoints = []v1alpha1.Endpoint{e}
		return s
	}
	large := suite.HonestReport()
	large.AgentVersion = strings.Repeat("x", 1200<<10)
	return []claim{
		{"a default route", pods("0.0.0.0/0"), []string{"0.0.0.0/0", "is a default route"}},
		{"half of all addresses", pods("0.0.0.0/1"), []string{"0.0.0.0/1", "which no cluster can have"}},
		{"a public network", pods("8.0.0.0/8"), []string{"8.0.0.0/8", "spec.allowedCIDRs", "10.0.0.0/8", "state it there"}},
		{"the network of a git host", pods("140.82.112.0/20"), []string{"140.82.112.0/20", "spec.allowedCIDRs"}},
		{"a cloud's metadata service", pods("169.254.169.254/32"), []string{"169.254.169.254/32",
			"which no cluster can have"}},
		{"a wide node address", nodes("10.128.0.0/9"), []string{"10.128.0.0/9", "not a node address"}},
		{"the pods of c1", pods("10.8.0.0/16"), []string{"10.8.0.0/16", "overlaps", "c1"}},
		{"a node of c1", pods(node + "/32"), []string{node, "node address", "c1"}},
		{"no network at all", v1alpha1.PeeringStatus{}, []string{"no pod or no service network", "spec.clusters"}},
		{"a malformed network", pods("10.40.0.0/99"), []string{"10.40.0.0/99", "not a CIDR"}},
		{"a malformed key", endpoint(func(e *v1alpha1.Endpoint) { e.PublicKey = "rm -rf /" }),
			[]string{`"gw"`, "public key"}},
		{"the key of c1", endpoint(func(e *v1alpha1.Endpoint) { e.PublicKey = key }), []string{`"gw"`, "public key", "c1"}},
		{"a malformed address", endpoint(func(e *v1alpha1.Endpoint) { e.Addresses[0].IP = "1.2.3.4; reboot" }),
			[]string{"reboot", "not a plain IP address"}},
		{"a loopback address", endpoint(func(e *v1alpha1.Endpoint) { e.Addresses[0].IP = "127.0.0.1" }),
			[]string{"127.0.0.1", "not the address of a node"}},
		{"an address of a pod of c1", endpoint(func(e *v1alpha1.Endpoint) { e.Addresses[0].IP = "10.8.0.9" }),
			[]string{"10.8.0.9", "c1"}},
		{"a status of 1.2 MB", large, []string{"bytes", "at most"}},
	}
}

// aMemberTurnsHostile: once accepted it claims what is not its own. Each claim is refused with a reason, and
// what was accepted before stays, for it and for everybody else.
func aMemberTurnsHostile(t *testing.T, v *suite.Visitor) {
	key, err := suite.JSONPath(t.Context(), "c1", "{.status.endpoint.publicKey}", "gateway", "c1-gw")
	if err != nil {
		t.Fatal(err)
	}
	before, err := suite.RemoteClusters(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	suite.ConnectionSurvives(t, 3*time.Second, suite.Undisturbed, func() {
		for _, c := range claims(key, suite.Lab().NodeAddress("c1-worker", "IPv4")) {
			t.Run("claims "+c.name, func(t *testing.T) {
				if err := v.Report(t.Context(), c.status); err != nil {
					t.Fatal(err)
				}
				suite.WaitContains(t, "karmada", "{.status.problems[*].message}", []string{"clusterset", "default"},
					append(c.words, v.Name)...)
				if after, err := suite.RemoteClusters(t.Context(), "c1"); err != nil || after != before {
					t.Errorf("c1 was told %s, is told %s: %v", before, after, err)
				}
				if reason, message, err := v.Accepted(t.Context()); err != nil || reason != "KeptLastGood" && reason != "Accepted" {
					t.Errorf("Accepted is %s: %s: %v", reason, message, err)
				}
			})
		}
	})
	t.Run("a status of 2 MB", func(t *testing.T) {
		large := suite.HonestReport()
		large.AgentVersion = strings.Repeat("x", 2<<20)
		// Whether the API server or etcd is the first to refuse depends on a few bytes.
		err := v.Report(t.Context(), large)
		if !apierrors.IsRequestEntityTooLargeError(err) && (err == nil || !strings.Contains(err.Error(), "larger than max")) {
			t.Errorf("its own API server is expected to refuse it: %v", err)
		}
	})
	if err := v.Report(t.Context(), suite.HonestReport()); err != nil {
		t.Fatal(err)
	}
	// The ClusterSet is not Ready yet: the visitor has no gateway, so nobody is connected to it.
	suite.WaitContains(t, "karmada", suite.ConditionText("Accepted"), []string{"member", v.Name}, "True/Accepted")
}
