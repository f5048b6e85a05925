// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/sealane"
)

// defaultLab stands apart from that of make lab-up and of make demo.
const defaultLab = "../../.lab-test"

// shared is the lab of this package's tests; TestMain sets it once.
var shared *sealane.Sealane

func TestMain(m *testing.M) {
	name := flag.String("lab", defaultLab, "state directory of the lab; one that is up already is used as it is")
	keep := flag.Bool("keep", false, "leave the lab running afterwards")
	flag.Uint64("seed", 0, "of what is done in random order; by default another one each time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := 1
	if err := boot(ctx, *name); err != nil {
		fmt.Fprintln(os.Stderr, "boot:", err)
	} else {
		ended := make(chan int, 1)
		go func() { ended <- m.Run() }()
		select {
		case code = <-ended:
		case <-ctx.Done():
			fmt.Fprintln(os.Stderr, "interrupted: removing the lab")
		}
	}
	stop()
	if code != 0 {
		keepLogs()
	}
	if *keep {
		os.Exit(code)
	}
	down, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	if err := lab.Down(down, *name, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "remove the lab:", err)
		code = 1
	}
	cancel()
	os.Exit(code)
}

// topology differs between the members in all that users' clusters differ in: push and pull, kube-proxy's
// mode, whether the CNI masquerades, and whether the gateway is a node of its own. All drop in FORWARD, as
// container engines leave it.
func topology() lab.Topology {
	t := lab.DefaultTopology()
	t.Clusters[0].KubeProxyMode, t.Clusters[0].IPMasq = lab.ProxyIPTables, true
	t.Clusters = append(t.Clusters, lab.Cluster{
		Name: "c3", Mode: lab.ModePush,
		PodCIDRs: []string{"10.10.0.0/16"}, ServiceCIDRs: []string{"10.110.0.0/16"},
		Nodes: []lab.Node{{Name: "c3-gw", Gateway: true}},
	})
	return t
}

func boot(ctx context.Context, name string) error {
	t := topology()
	if old, err := lab.Open(name); err == nil {
		t = old.Topology
	}
	l, err := lab.Up(ctx, lab.Options{Name: name, Topology: t, Out: os.Stderr})
	if err != nil {
		return err
	}
	shared = &sealane.Sealane{Lab: l, Out: os.Stderr}
	if err := shared.Install(ctx); err != nil {
		return err
	}
	replicas := map[string]int{"c1": 1, "c2": 3, "c3": 2}
	for _, c := range l.Topology.Clusters {
		if err := (sealane.Workload{Cluster: c, Replicas: replicas[c.Name]}).Apply(ctx, l); err != nil {
			return err
		}
	}
	for _, c := range l.Topology.Clusters {
		_, err := l.Kubectl(ctx, "--context", c.Name, "-n", "sample", "wait", "--for=condition=Ready", "pods", "--all", "--timeout=180s")
		if err != nil {
			return err
		}
	}
	return nil
}

// keepLogs copies the logs of a failed run to where a person finds them after the lab is gone.
func keepLogs() {
	if shared == nil {
		return
	}
	dir, err := os.MkdirTemp("", "sealane-e2e-logs-")
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(shared.Lab.Dir+"/logs"))
	}
	fmt.Fprintln(os.Stderr, "logs:", dir, err)
}
