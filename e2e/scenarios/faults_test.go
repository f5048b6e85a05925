// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
)

// undisturbed is the longest gap of traffic that nothing should disturb: scheduling noise of a busy machine.
const undisturbed = time.Second

// aConnectionSurvives holds one TCP connection from a worker of c1 to a pod on a worker of c2 while the fault
// happens. It must live to the end, without a reset, and never be silent for longer than gap.
func aConnectionSurvives(t *testing.T, duration, gap time.Duration, fault func()) {
	t.Helper()
	server := podIP(t, "c2", "server-c2-worker") + ":8080"
	eventually(t, 30*time.Second, func(ctx context.Context) error {
		_, err := get(ctx, "c1", "client-c1-worker", "http://"+server)
		return err
	})
	type result struct {
		out string
		err error
	}
	ended := make(chan result, 1)
	go func() {
		out, err := in(t.Context(), "c1", "client-c1-worker", "tcp", "-duration="+duration.String(), server)
		ended <- result{out, err}
	}()
	fault()
	r := <-ended
	if r.err != nil {
		t.Fatalf("the connection did not survive: %v\n%s", r.err, r.out)
	}
	m := regexp.MustCompile(`longest-gap=(\S+)`).FindStringSubmatch(r.out)
	if m == nil {
		t.Fatalf("expected a report of the connection, found %q", r.out)
	}
	longest, err := time.ParseDuration(m[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("longest gap %s, at most %s expected", longest, gap)
	if longest > gap {
		t.Errorf("longest gap %s, expected at most %s", longest, gap)
	}
}

// TestRestartsOfTheControlPlaneDisturbNothing: the cluster agent, DNS, the controller.
func TestRestartsOfTheControlPlaneDisturbNothing(t *testing.T) {
	exported(t, "c2", "whereami-cs")
	answeredBy(t, "c1", "client-c1-worker", whereami, "c2")
	for _, workload := range []string{"sealane-cluster-agent", "sealane-dns"} {
		t.Run(workload, func(t *testing.T) {
			aConnectionSurvives(t, 15*time.Second, undisturbed, func() {
				for _, c := range shared.Lab.Topology.Clusters {
					kubectl(t, "--context", c.Name, "-n", "sealane-system", "rollout", "restart", "deployment/"+workload)
				}
				for _, c := range shared.Lab.Topology.Clusters {
					kubectl(t, "--context", c.Name, "-n", "sealane-system", "rollout", "status", "deployment/"+workload, "--timeout=60s")
				}
			})
			answeredBy(t, "c1", "client-c1-worker", whereami, "c2")
		})
	}
	t.Run("sealane-controller", func(t *testing.T) {
		aConnectionSurvives(t, 8*time.Second, undisturbed, func() {
			if err := shared.Lab.KillProcess(t.Context(), "sealane-controller"); err != nil {
				t.Error(err)
			}
			if err := shared.Lab.StartProcess("sealane-controller"); err != nil {
				t.Error(err)
			}
		})
		answeredBy(t, "c1", "client-c1-worker", whereami, "c2")
	})
}

// TestARestartedNodeAgentTakesUpWhereItLeft: with in-process WireGuard packets wait for the process.
func TestARestartedNodeAgentTakesUpWhereItLeft(t *testing.T) {
	t.Run("on a worker", func(t *testing.T) {
		aConnectionSurvives(t, 12*time.Second, undisturbed, func() { restartNodeAgent(t, "c1", "c1-worker") })
	})
	t.Run("on a gateway", func(t *testing.T) {
		aConnectionSurvives(t, 20*time.Second, 5*time.Second, func() { restartNodeAgent(t, "c1", "c1-gw") })
	})
}

func restartNodeAgent(t *testing.T, cluster, node string) {
	t.Helper()
	kubectl(t, "--context", cluster, "-n", "sealane-system", "delete", "pod", "--wait=false",
		"-l", "app.kubernetes.io/name=sealane-node", "--field-selector=spec.nodeName="+node)
}

// TestAnOutageOfKarmadaDisturbsNothing: its API server is away, and a node agent restarts meanwhile.
func TestAnOutageOfKarmadaDisturbsNothing(t *testing.T) {
	aConnectionSurvives(t, 70*time.Second, 5*time.Second, func() {
		outage(t, "karmada-apiserver", 60*time.Second, func() { restartNodeAgent(t, "c1", "c1-gw") })
	})
}

// TestAnOutageOfAMembersAPIServerDisturbsNothing.
func TestAnOutageOfAMembersAPIServerDisturbsNothing(t *testing.T) {
	t.Cleanup(func() { waitForAPI(t, "c2") })
	aConnectionSurvives(t, 70*time.Second, undisturbed, func() {
		outage(t, "c2-apiserver", 60*time.Second, func() {})
	})
	waitForAPI(t, "c2")
	exported(t, "c2", "whereami-cs")
	// Karmada's own informers of a member back off for minutes after an outage.
	eventually(t, 4*time.Minute, func(ctx context.Context) error {
		_, err := get(ctx, "c1", "client-c1-worker", "http://"+whereami)
		return err
	})
}

// waitForAPI waits until a member serves what its CRDs define again, which is a little later than the rest.
func waitForAPI(t *testing.T, cluster string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := try(ctx, "--context", cluster, "get", "serviceexports.multicluster.x-k8s.io", "-A")
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Error(err)
			return
		case <-tick.C:
		}
	}
}

// outage stops a process of the lab for a while and starts it again.
func outage(t *testing.T, process string, length time.Duration, meanwhile func()) {
	t.Helper()
	if err := shared.Lab.StopProcess(t.Context(), process); err != nil {
		t.Error(err)
	}
	over := time.After(length)
	meanwhile()
	<-over
	if err := shared.Lab.StartProcess(process); err != nil {
		t.Error(err)
	}
}

// TestWhatIsDeletedByHandComesBack: our Peering and a Bundle in the member, and a Work on the Karmada API.
func TestWhatIsDeletedByHandComesBack(t *testing.T) {
	exported(t, "c2", "whereami-cs")
	answeredBy(t, "c1", "client-c1-worker", whereami, "c2")
	work, err := try(t.Context(), "--context", "karmada", "-n", "karmada-es-c2", "get", "works", "-l", "app.kubernetes.io/managed-by=sealane.io",
		"-o", `jsonpath={.items[?(@.spec.workload.manifests[0].kind=="Peering")].metadata.name}`)
	if err != nil || work == "" {
		t.Fatalf("find the Work of c2's Peering: %q, %v", work, err)
	}
	for name, object := range map[string][]string{
		"the Peering in a member": {"c2", "peering/sealane"},
		"Bundles in a member":     {"c2", "bundles", "--all"},
		"a Work":                  {"karmada", "work/" + work, "-n", "karmada-es-c2"},
	} {
		t.Run(name, func(t *testing.T) {
			aConnectionSurvives(t, 10*time.Second, undisturbed, func() {
				kubectl(t, append([]string{"--context", object[0], "delete", "--wait=false"}, object[1:]...)...)
			})
			eventually(t, 30*time.Second, func(ctx context.Context) error {
				got, err := jsonpath(ctx, "c2", "{.status.networks.podCIDRs[0]}", "peering", "sealane")
				if err == nil && !strings.HasPrefix(got, "10.9.") {
					err = fmt.Errorf("c2's Peering reports %q", got)
				}
				return err
			})
			answeredBy(t, "c1", "client-c1-worker", whereami, "c2")
		})
	}
}

// TestAMemberLeavesAndJoinsAgain: its nodes end clean, the other releases it, and it comes back.
func TestAMemberLeavesAndJoinsAgain(t *testing.T) {
	plugin(t, "leave", "c2")
	clean(t, "c2")
	waiting := karmadaSite(t)
	waiting.spread("c2")
	eventually(t, 10*time.Second, func(ctx context.Context) error {
		out, err := shared.Lab.InNode(ctx, "c1-worker", "ip", "route", "show", "table", "all")
		if err == nil && strings.Contains(string(out), "10.9.") {
			err = fmt.Errorf("c1 still routes to c2: %s", out)
		}
		return err
	})
	plugin(t, "join", "c2")
	// What was exported while it was away arrives.
	waiting.sources("c1", map[string]int{"c2": 2})
	shares(t, "c1", "http://"+waiting.name(), 10, "c2")
	checkHTTP(t, "c1", "client-c1-worker", podIP(t, "c2", "server-c2-worker")+":8080", "server-c2-worker", podIP(t, "c1", "client-c1-worker"))
}

// clean expects nothing of Sealane's in the kernels of a cluster's nodes.
func clean(t *testing.T, cluster string) {
	t.Helper()
	for _, c := range shared.Lab.Topology.Clusters {
		for _, node := range c.Nodes {
			if c.Name == cluster {
				eventually(t, 30*time.Second, func(ctx context.Context) error { return nodeClean(ctx, shared.Lab, node.Name) })
			}
		}
	}
}

func nodeClean(ctx context.Context, l *lab.Lab, node string) error {
	for what, argv := range map[string][]string{
		`sl-`:        {"ip", "-o", "link"},
		`proto 81`:   {"ip", "route", "show", "table", "all"},
		`lookup 510`: {"ip", "rule"},
		`sealane`:    {"nft", "list", "tables"},
		`"sl-`:       {"nft", "list", "ruleset"},
		`-i sl-`:     {"iptables-save"},
	} {
		out, err := l.InNode(ctx, node, argv...)
		if err != nil {
			return err
		}
		for line := range strings.SplitSeq(string(out), "\n") {
			if strings.Contains(line, what) {
				return fmt.Errorf("%s is not clean: %v: %s", node, argv, line)
			}
		}
	}
	return nil
}
