// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"encoding/base64"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/dataplane/topology"
)

var update = flag.Bool("update", false, "rewrite the goldens")

// state is one golden: a node of a case and the plan for it.
type state struct {
	name string
	plan plan.Plan
}

// facts are NodeFacts in YAML. The public key is that of the node's Gateway.
type facts struct {
	Name         string           `json:"name"`
	PodAddresses []netip.Addr     `json:"podAddresses"`
	UnderlayMTU  int              `json:"underlayMTU"`
	IPv6         bool             `json:"ipv6"`
	Alive        map[string][]int `json:"alive"`
	Held         map[string][]int `json:"held"`
	Current      map[string][]int `json:"current"`
	Withdrawn    bool             `json:"withdrawn"`
	Carrier      string           `json:"carrier"`
	// Key of a node that is no gateway, and Straight those of the nodes that answer it.
	Key      string   `json:"key"`
	Straight []string `json:"straight"`
}

func readInput(t *testing.T, objects []byte) topology.Input {
	t.Helper()
	var in topology.Input
	for doc := range strings.SplitSeq(string(objects), "---\n") {
		var kind struct {
			Kind string `json:"kind"`
		}
		unmarshal(t, []byte(doc), &kind)
		switch kind.Kind {
		case "Peering":
			in.Peering = &v1alpha1.Peering{}
			unmarshal(t, []byte(doc), in.Peering)
		case "Gateway":
			in.Gateways = append(in.Gateways, v1alpha1.Gateway{})
			unmarshal(t, []byte(doc), &in.Gateways[len(in.Gateways)-1])
		case "GlobalAllocation":
			in.GlobalAllocations = append(in.GlobalAllocations, v1alpha1.GlobalAllocation{})
			unmarshal(t, []byte(doc), &in.GlobalAllocations[len(in.GlobalAllocations)-1])
		case "ClusterGlobalEgressIP":
			in.ClusterGlobalEgressIP = &v1alpha1.ClusterGlobalEgressIP{}
			unmarshal(t, []byte(doc), in.ClusterGlobalEgressIP)
		case "Node":
			in.Nodes = append(in.Nodes, corev1.Node{})
			unmarshal(t, []byte(doc), &in.Nodes[len(in.Nodes)-1])
		default:
			t.Fatalf("unknown kind %q", kind.Kind)
		}
	}
	return in
}

func unmarshal(t *testing.T, doc []byte, into any) {
	t.Helper()
	if err := yaml.Unmarshal(doc, into); err != nil {
		t.Fatalf("read %s: %v", doc, err)
	}
}

// eachCase calls f with every golden file, its topology and the facts of its nodes.
func eachCase(t *testing.T, f func(path string, archive *txtar.Archive, top topology.Topology,
	nodes []plan.NodeFacts)) {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var top topology.Topology
		var nodes []facts
		for _, file := range archive.Files {
			switch file.Name {
			case "objects.yaml":
				top = topology.Build(readInput(t, file.Data))
			case "facts.yaml":
				unmarshal(t, file.Data, &nodes)
			}
		}
		var out []plan.NodeFacts
		for _, n := range nodes {
			fact := plan.NodeFacts{Name: n.Name, PodAddresses: n.PodAddresses, UnderlayMTU: n.UnderlayMTU, IPv6: n.IPv6,
				Alive: n.Alive, Held: n.Held, Current: n.Current, Withdrawn: n.Withdrawn, Carrier: n.Carrier}
			for _, g := range top.Local.Gateways {
				if g.Node == n.Name {
					fact.ID = plan.PeerOf(g)
					if g.NextKey != (topology.Key{}) {
						fact.NextID = plan.PeerOf(topology.Gateway{PublicKey: g.NextKey})
					}
				}
			}
			if n.Key != "" {
				fact.ID = peerID(t, n.Key)
			}
			for _, key := range n.Straight {
				if fact.Straight == nil {
					fact.Straight = map[plan.PeerID]bool{}
				}
				fact.Straight[peerID(t, key)] = true
			}
			out = append(out, fact)
		}
		f(path, archive, top, out)
	}
}

func peerID(t *testing.T, key string) plan.PeerID {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		t.Fatal(err)
	}
	return plan.PeerID(raw)
}

func planFor(top topology.Topology, n plan.NodeFacts) plan.Plan {
	return plan.For(top.WithNextKeys(n.Replacement()).WithVXLAN(n.Name, nil), n)
}

func states(t *testing.T) []state {
	t.Helper()
	var out []state
	eachCase(t, func(path string, _ *txtar.Archive, top topology.Topology, nodes []plan.NodeFacts) {
		for _, n := range nodes {
			name := strings.TrimSuffix(filepath.Base(path), ".txtar") + "/" + n.Name
			out = append(out, state{name, planFor(top, n)})
		}
	})
	return out
}

func TestGolden(t *testing.T) {
	eachCase(t, func(path string, archive *txtar.Archive, top topology.Topology, nodes []plan.NodeFacts) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			got := archive.Files[:0:0]
			for _, file := range archive.Files {
				if strings.HasSuffix(file.Name, ".yaml") {
					got = append(got, file)
				}
			}
			if len(top.Problems) > 0 {
				var b strings.Builder
				for _, p := range top.Problems {
					fmt.Fprintf(&b, "%s %s: %s\n", p.Ref, p.Reason, p.Message)
				}
				got = append(got, txtar.File{Name: "problems.txt", Data: []byte(b.String())})
			}
			for _, n := range nodes {
				got = append(got, txtar.File{Name: n.Name + ".txt", Data: []byte(planFor(top, n).String())})
			}
			result := txtar.Format(&txtar.Archive{Comment: archive.Comment, Files: got})
			if *update {
				if err := os.WriteFile(path, result, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(txtar.Format(archive)), string(result)); diff != "" {
				t.Errorf("(-want +got, -update accepts it)\n%s", diff)
			}
		})
	})
}

// TestTablesAreValid feeds every ruleset to nft, and wants nft's own listing to be ours: rules are
// written as nft spells them.
func TestTablesAreValid(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: it loads rulesets in a network namespace of its own")
	}
	for _, s := range append(states(t), unlisted(t)...) {
		t.Run(s.name, func(t *testing.T) {
			for _, table := range s.plan.Tables {
				listed := strings.ReplaceAll(load(t, table.String()), " packets 0 bytes 0", "")
				for _, chain := range table.Chains {
					for _, rule := range chain.Rules {
						if !strings.Contains(listed, "\t\t"+rule+"\n") {
							t.Errorf("nft spells %q in another way:\n%s", rule, listed)
						}
					}
				}
			}
		})
	}
}

// unlisted are what nodes hold that the topology does not know, of clusters with and without nodes.
func unlisted(t *testing.T) []state {
	t.Helper()
	var out []state
	eachCase(t, func(path string, _ *txtar.Archive, top topology.Topology, nodes []plan.NodeFacts) {
		n := nodes[0]
		n.Name = "unlisted"
		out = append(out, state{filepath.Base(path) + "/unlisted", planFor(top, n)})
		top.Local.Nodes = nil
		out = append(out, state{filepath.Base(path) + "/no nodes", planFor(top, n)})
	})
	return out
}

func load(t *testing.T, ruleset string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ruleset.nft")
	if err := os.WriteFile(file, []byte(ruleset), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--net", "sh", "-c",
		`nft --check -f "$0" && nft -f "$0" && nft list ruleset`, file)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft: %v\n%s\n%s", err, out, ruleset)
	}
	return string(out)
}
