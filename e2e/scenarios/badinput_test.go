// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/sealane"
)

// saysEventually waits until a field holds all the words, and returns it.
func saysEventually(t *testing.T, cluster, path string, object []string, words ...string) {
	t.Helper()
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		got, err := jsonpath(ctx, cluster, path, object...)
		for _, word := range words {
			if err == nil && !strings.Contains(got, word) {
				err = fmt.Errorf("%s of %v in %s: expected %q in %q", path, object, cluster, word, got)
			}
		}
		return err
	})
}

// says expects words in what a table shows.
func says(t *testing.T, out string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(out, word) {
			t.Errorf("expected %q in\n%s", word, out)
		}
	}
}

func conditionText(kind string) string {
	return fmt.Sprintf(`{.status.conditions[?(@.type==%[1]q)].status}/{.status.conditions[?(@.type==%[1]q)].reason}: {.status.conditions[?(@.type==%[1]q)].message}`, kind)
}

// TestAClusterWithNetworksOfAnotherIsRefused: the one that came first keeps them, everybody who needs to know
// is told, and with other networks the newcomer is welcome.
func TestAClusterWithNetworksOfAnotherIsRefused(t *testing.T) {
	v := newVisitor(t)
	before, err := told(t.Context(), "c2")
	if err != nil {
		t.Fatal(err)
	}
	overlapping := good()
	overlapping.Networks.PodCIDRs = []string{"10.8.0.0/24"}
	aConnectionSurvives(t, 20*time.Second, undisturbed, func() {
		v.join(t, overlapping)
		words := []string{"10.8.0.0/16", "10.8.0.0/24", "c1", v.name}
		saysEventually(t, "karmada", conditionText("Accepted"), []string{"member", v.name}, append(words, "False/CIDROverlap")...)
		saysEventually(t, "karmada", conditionText("Accepted"), []string{"member", "c1"}, append(words, "True/Accepted")...)
		saysEventually(t, "karmada", conditionText("Ready"), []string{"clusterset", "default"}, append(words, "False/Problems")...)
		says(t, kubectl(t, "--context", "karmada", "get", "clusterset,members", "-o", "wide"), words...)
		says(t, plugin(t, "show", "clusterset"), v.name)
		t.Run("and told so in its own cluster", func(t *testing.T) {
			out := v.kubectl(t, "get", "peering", "sealane", "-o", `jsonpath={.spec.conditions[?(@.type=="Accepted")].message}|{.spec.remoteClusters}`)
			says(t, out, words...)
			if !strings.HasSuffix(out, "|[]") {
				t.Errorf("it is told of other clusters: %s", out)
			}
		})
		t.Run("and join says why", func(t *testing.T) {
			out, err := shared.Run(t.Context(), "join", v.name, "--timeout=30s")
			if err == nil {
				t.Error("join succeeded")
			}
			says(t, out, append(words, "refused")...)
		})
		if after, err := told(t.Context(), "c2"); err != nil || after != before {
			t.Errorf("c2 was told %s, is told %s: %v", before, after, err)
		}
	})
	if err := v.report(t.Context(), good()); err != nil {
		t.Fatal(err)
	}
	saysEventually(t, "karmada", conditionText("Accepted"), []string{"member", v.name}, "True/Accepted")
	saysEventually(t, "c2", "{.spec.remoteClusters[*].name}", []string{"peering", "sealane"}, v.name)
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
		s := good()
		s.Networks.PodCIDRs = []string{cidr}
		return s
	}
	endpoint := func(change func(*v1alpha1.Endpoint)) v1alpha1.PeeringStatus {
		s, e := good(), gateway
		e.Addresses = []v1alpha1.EndpointAddress{gateway.Addresses[0]}
		change(&e)
		s.Endpoints = []v1alpha1.Endpoint{e}
		return s
	}
	large := good()
	large.AgentVersion = strings.Repeat("x", 1200<<10)
	return []claim{
		{"a default route", pods("0.0.0.0/0"), []string{"0.0.0.0/0", "a default route cannot be claimed"}},
		{"half of all addresses", pods("0.0.0.0/1"), []string{"0.0.0.0/1", "no single cluster owns"}},
		{"the pods of c1", pods("10.8.0.0/16"), []string{"10.8.0.0/16", "overlaps", "c1"}},
		{"a node of c1", pods(node + "/32"), []string{node, "node address", "c1"}},
		{"no network at all", v1alpha1.PeeringStatus{}, []string{"no pod or no service network", "spec.clusters"}},
		{"a malformed network", pods("10.40.0.0/99"), []string{"10.40.0.0/99", "expected a CIDR"}},
		{"a malformed key", endpoint(func(e *v1alpha1.Endpoint) { e.PublicKey = "rm -rf /" }), []string{`"gw"`, "public key"}},
		{"the key of c1", endpoint(func(e *v1alpha1.Endpoint) { e.PublicKey = key }), []string{`"gw"`, "public key", "c1"}},
		{"a malformed address", endpoint(func(e *v1alpha1.Endpoint) { e.Addresses[0].IP = "1.2.3.4; reboot" }), []string{"reboot", "not an IP address"}},
		{"a loopback address", endpoint(func(e *v1alpha1.Endpoint) { e.Addresses[0].IP = "127.0.0.1" }), []string{"127.0.0.1", "not a plain unicast address"}},
		{"an address of a pod of c1", endpoint(func(e *v1alpha1.Endpoint) { e.Addresses[0].IP = "10.8.0.9" }), []string{"10.8.0.9", "c1"}},
		{"a status of 1.2 MB", large, []string{"bytes", "at most"}},
	}
}

// aMemberTurnsHostile: once accepted it claims what is not its own. Each claim is refused with a reason, and
// what was accepted before stays, for it and for everybody else.
func aMemberTurnsHostile(t *testing.T, v *visitor) {
	key, err := jsonpath(t.Context(), "c1", "{.status.endpoint.publicKey}", "gateway", "c1-gw")
	if err != nil {
		t.Fatal(err)
	}
	before, err := told(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	aConnectionSurvives(t, 25*time.Second, undisturbed, func() {
		for _, c := range claims(key, shared.Lab.NodeAddress("c1-worker", "IPv4")) {
			t.Run("claims "+c.name, func(t *testing.T) {
				if err := v.report(t.Context(), c.status); err != nil {
					t.Fatal(err)
				}
				saysEventually(t, "karmada", "{.status.problems[*].message}", []string{"clusterset", "default"}, append(c.words, v.name)...)
				if after, err := told(t.Context(), "c1"); err != nil || after != before {
					t.Errorf("c1 was told %s, is told %s: %v", before, after, err)
				}
				if reason, message, err := v.accepted(t.Context()); err != nil || reason != "KeptLastGood" && reason != "Accepted" {
					t.Errorf("Accepted is %s: %s: %v", reason, message, err)
				}
			})
		}
	})
	t.Run("a status of 2 MB", func(t *testing.T) {
		large := good()
		large.AgentVersion = strings.Repeat("x", 2<<20)
		// Whether the API server or etcd is the first to refuse depends on a few bytes.
		err := v.report(t.Context(), large)
		if !apierrors.IsRequestEntityTooLargeError(err) && (err == nil || !strings.Contains(err.Error(), "larger than max")) {
			t.Errorf("its own API server is expected to refuse it: %v", err)
		}
	})
	if err := v.report(t.Context(), good()); err != nil {
		t.Fatal(err)
	}
	saysEventually(t, "karmada", conditionText("Ready"), []string{"clusterset", "default"}, "True/Ready")
}

// TestAnUnknownCableDriverIsRefused by the API, with the drivers that there are.
func TestAnUnknownCableDriverIsRefused(t *testing.T) {
	out, err := try(t.Context(), "--context", "karmada", "patch", "clusterset", "default", "--type=merge", "-p", `{"spec":{"cable":{"driver":"pigeon"}}}`)
	if err == nil {
		t.Fatalf("accepted: %s", out)
	}
	says(t, err.Error(), `spec.cable.driver`, `Unsupported value: "pigeon"`, `supported values`, `"wireguard"`)
}

// TestOfTwoClusterSetsTheOlderKeepsItsClusters.
func TestOfTwoClusterSetsTheOlderKeepsItsClusters(t *testing.T) {
	const second = `
apiVersion: sealane.io/v1alpha1
kind: ClusterSet
metadata: {name: second}
spec: {clusterAffinity: {clusterNames: [c1, nowhere]}}
`
	before, err := told(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	aConnectionSurvives(t, 5*time.Second, undisturbed, func() {
		if err := sealane.Apply(t.Context(), shared.Lab, "karmada", []byte(second)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := try(context.Background(), "--context", "karmada", "delete", "clusterset", "second", "--timeout=30s"); err != nil {
				t.Error(err)
			}
		})
		saysEventually(t, "karmada", conditionText("Ready"), []string{"clusterset", "second"},
			"False/", "cluster c1 belongs to the older ClusterSet default", "nowhere is named and Karmada has no such cluster")
		says(t, kubectl(t, "--context", "karmada", "get", "clusterset", "second", "-o", "wide"), "older ClusterSet default")
	})
	saysEventually(t, "karmada", conditionText("Ready"), []string{"clusterset", "default"}, "True/Ready")
	if after, err := told(t.Context(), "c1"); err != nil || after != before {
		t.Errorf("c1 was told %s, is told %s: %v", before, after, err)
	}
}

// TestADeletedGatewayNodeTakesItsEndpointAlong, and brings it back.
func TestADeletedGatewayNodeTakesItsEndpointAlong(t *testing.T) {
	const gateways = `{.status.endpoints[*].gateway}`
	member := []string{"member", "c2"}
	saysEventually(t, "karmada", gateways, member, "c2-gw")
	node := kubectl(t, "--context", "c2", "get", "node", "c2-gw", "-o",
		`jsonpath={"apiVersion: v1\nkind: Node\nmetadata: {name: c2-gw, labels: "}{.metadata.labels}{"}\nspec: {podCIDR: "}{.spec.podCIDR}{", podCIDRs: "}{.spec.podCIDRs}{"}\n"}`)
	restore := func() {
		if err := sealane.Apply(context.Background(), shared.Lab, "c2", []byte(node)); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(restore)
	kubectl(t, "--context", "c2", "delete", "node", "c2-gw")
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		for cluster, remote := range map[string][]string{"karmada": member, "c1": {"peering", "sealane"}} {
			path := gateways
			if cluster == "c1" {
				path = `{.spec.remoteClusters[?(@.name=="c2")].endpoints[*].gateway}`
			}
			if got, err := jsonpath(ctx, cluster, path, remote...); err != nil || strings.Contains(got, "c2-gw") {
				return fmt.Errorf("gateways of c2 according to %s: %q, %w", cluster, got, err)
			}
		}
		return nil
	})
	restore()
	saysEventually(t, "karmada", gateways, member, "c2-gw")
	saysEventually(t, "c1", `{.spec.remoteClusters[?(@.name=="c2")].endpoints[*].gateway}`, []string{"peering", "sealane"}, "c2-gw")
	for _, server := range []string{"server-c2-gw", "server-c2-worker"} {
		pod := podIP(t, "c2", server)
		eventually(t, 30*time.Second, func(ctx context.Context) error {
			_, err := get(ctx, "c1", "client-c1-worker", "http://"+pod+":8080")
			return err
		})
	}
}

// TestANamespaceThatTheImporterLacks is reported, and once it is there the service is.
func TestANamespaceThatTheImporterLacks(t *testing.T) {
	const manifests = `
apiVersion: v1
kind: Namespace
metadata: {name: elsewhere}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: elsewhere}
spec: {ports: [{port: 80}], selector: {app: none}}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: web, namespace: elsewhere}
`
	t.Cleanup(func() {
		for _, cluster := range []string{"c2", "c1"} {
			if _, err := try(context.Background(), "--context", cluster, "delete", "namespace", "elsewhere", "--ignore-not-found", "--timeout=60s"); err != nil {
				t.Error(err)
			}
		}
	})
	if err := sealane.Apply(t.Context(), shared.Lab, "c2", []byte(manifests)); err != nil {
		t.Fatal(err)
	}
	peering := []string{"peering", "sealane"}
	saysEventually(t, "c1", conditionText("ImportsApplied"), peering, "False/NamespaceMissing", "elsewhere", "create them")
	kubectl(t, "--context", "c1", "create", "namespace", "elsewhere")
	saysEventually(t, "c1", "{.spec.type}", []string{"serviceimport", "web", "-n", "elsewhere"}, "ClusterSetIP")
	saysEventually(t, "c1", conditionText("ImportsApplied"), peering, "True/Applied")
}

// TestACorefileThatSomebodyEdited: Sealane's block is put back, and nothing else is touched; where it cannot
// tell what is its own, it says so and keeps its hands off.
func TestACorefileThatSomebodyEdited(t *testing.T) {
	corefile := func(ctx context.Context) (string, error) {
		return jsonpath(ctx, "c1", "{.data.Corefile}", "configmap", "coredns", "-n", "kube-system")
	}
	write := func(text string) {
		t.Helper()
		if err := writeCorefile(t.Context(), "c1", text); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want string) {
		t.Helper()
		eventually(t, 20*time.Second, func(ctx context.Context) error {
			got, err := corefile(ctx)
			if err == nil && got != want {
				err = fmt.Errorf("expected\n%s\nfound\n%s", want, got)
			}
			return err
		})
	}
	original, err := corefile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := writeCorefile(context.Background(), "c1", original); err != nil {
			t.Error(err)
		}
	})
	const mine = "# kept by the admins\n"
	begin, end := strings.Index(original, "# BEGIN sealane"), strings.Index(original, "# END sealane")
	if begin < 0 || end < begin {
		t.Fatalf("no block of Sealane's in\n%s", original)
	}
	condition := []string{"peering", "sealane"}

	write(mine + original[:begin] + "# BEGIN sealane\nclusterset.local:53 {\n    forward . 192.0.2.1\n}\n" + original[end:])
	expect(mine + original)

	broken := mine + strings.Replace(original, "# END sealane", "# end", 1)
	write(broken)
	saysEventually(t, "c1", conditionText("DNSConfigured"), condition, "False/MarkersBroken", "left as it is", "# END sealane", "remove every line")
	saysEventually(t, "karmada", conditionText("DNSConfigured"), []string{"member", "c1"}, "False/MarkersBroken")
	expect(broken)

	write(mine + original[:begin] + strings.TrimPrefix(original[end:], "# END sealane\n"))
	saysEventually(t, "c1", conditionText("DNSConfigured"), condition, "True/Configured")
	expect(original[begin:end] + "# END sealane\n" + mine + original[:begin] + strings.TrimPrefix(original[end:], "# END sealane\n"))
}

// writeCorefile replaces the Corefile of a cluster's DNS.
func writeCorefile(ctx context.Context, cluster, text string) error {
	_, err := try(ctx, "--context", cluster, "-n", "kube-system", "patch", "configmap", "coredns", "--type=merge",
		"-p", fmt.Sprintf(`{"data":{"Corefile":%q}}`, text+"\n"))
	return err
}
