// SPDX-License-Identifier: Apache-2.0

// Command demo shows Sealane's main job on one machine: a pod of one cluster reaches a service of another by
// name, through an encrypted tunnel, with its own address.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/sealane"
)

const (
	service = "whereami-cs"
	url     = "http://whereami-cs.sample.svc.clusterset.local"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	name := flag.String("name", ".lab-demo", "the lab's state directory")
	flag.Parse()
	if err := run(ctx, *name); err != nil {
		fmt.Fprintf(os.Stderr, "demo: failed: %v\n", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, name string) error {
	l, err := lab.Up(ctx, lab.Options{Name: name, Topology: lab.DefaultTopology(), Out: os.Stdout})
	if err != nil {
		return err
	}
	s := &sealane.Sealane{Lab: l, Out: os.Stdout}
	if err := s.Install(ctx); err != nil {
		return err
	}
	for i, c := range l.Topology.Clusters {
		if err := (sealane.Workload{Cluster: c, Replicas: 3 * i}).Apply(ctx, l); err != nil {
			return err
		}
	}
	if err := ready(ctx, l); err != nil {
		return err
	}
	if out, err := s.Run(ctx, "unexport", service, "-n", "sample", "--context", "c2"); err != nil {
		return fmt.Errorf("start from nothing exported: %w: %s", err, out)
	}
	fmt.Printf("\n$ kubectl karmada sealane export %s -n sample --context c2\n", service)
	start := time.Now()
	out, err := s.Run(ctx, "export", service, "-n", "sample", "--context", "c2")
	if err != nil {
		return err
	}
	fmt.Print(out)
	return answer(ctx, l, start)
}

func ready(ctx context.Context, l *lab.Lab) error {
	for _, c := range l.Topology.Clusters {
		if _, err := l.Kubectl(ctx, "--context", c.Name, "-n", "sample", "wait", "--for=condition=Ready",
			"pods", "--all", "--timeout=120s"); err != nil {
			return fmt.Errorf("pods of %s: %w", c.Name, err)
		}
	}
	return nil
}

// answer asks from a pod on c1's worker until c2 answers, and checks what it says.
func answer(ctx context.Context, l *lab.Lab, start time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client := "client-" + l.Topology.Clusters[0].Nodes[1].Name
	var raw []byte
	var err error
	for {
		raw, err = l.Kubectl(ctx, "--context", "c1", "-n", "sample", "exec", client, "--", "/client", "http", url)
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("expected an answer from %s, found: %w", url, err)
	}
	took := time.Since(start)
	fmt.Printf("\n$ kubectl --context c1 -n sample exec %s -- /client http %s\n%s\n", client, url, raw)
	a, err := sealane.ParseAnswer(raw)
	if err != nil {
		return err
	}
	if err := check(a, l.Topology.Clusters[0]); err != nil {
		return err
	}
	fmt.Printf(`
The lab goes on running. Look around:
  export KUBECONFIG=%s PATH=%s/bin:%s:$PATH
  kubectl --context c1 get serviceimports,endpointslices -n sample
  kubectl karmada sealane show all --karmada-context karmada
Remove it:
  make lab-down LAB=%s

demo: ok: %.1fs from export to answer, served by %s
`, l.Kubeconfig(), l.Dir, filepath.Dir(l.Tool("kubectl")), l.Name, took.Seconds(), a.Cluster)
	return nil
}

func check(a sealane.Answer, c1 lab.Cluster) error {
	if a.Cluster != "c2" {
		return fmt.Errorf("expected an answer from c2, found %q", a.Cluster)
	}
	client, err := netip.ParseAddr(a.Client)
	if err != nil {
		return fmt.Errorf("expected the client's address, found %q: %w", a.Client, err)
	}
	for _, cidr := range c1.PodCIDRs {
		if p, err := netip.ParsePrefix(cidr); err == nil && p.Contains(client) {
			return nil
		}
	}
	return fmt.Errorf("expected a client address in c1's pod networks %v, found %s", c1.PodCIDRs, client)
}
