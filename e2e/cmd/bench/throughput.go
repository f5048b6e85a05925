// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
)

// path is a way from a client to a server, and what was measured on it.
type path struct {
	Name string
	// Aim is the least ratio to the reference; zero for the reference itself.
	Aim float64
	// One and Four are the throughputs of as many TCP flows in Mbit/s, RTT in microseconds, one per round.
	One, Four, RTT []float64

	// client runs the client program where the path begins.
	client func(ctx context.Context, args ...string) (string, error)
	target string
}

// throughput measures the paths in turns, so that a change in the machine's mood meets all of them.
// It returns the memory of the reference's devices too.
func throughput(ctx context.Context, l *lab.Lab, rounds int, duration time.Duration) ([]path, []process, error) {
	c1, c2 := l.Topology.Clusters[0], l.Topology.Clusters[1]
	link := strings.TrimSuffix(l.Netns(gateway(c1)), "-"+gateway(c1))
	ref, err := newReference(ctx, link)
	if err != nil {
		return nil, nil, fmt.Errorf("wire the reference: %w", err)
	}
	defer func() { //nolint:contextcheck // what ended the context must not keep it
		if err := ref.Close(); err != nil {
			fmt.Println("remove the reference:", err) // what is left goes with the lab
		}
	}()
	paths := []path{
		{Name: "reference", target: ref.Target, client: ref.in(ref.Client)},
		{Name: "reference with pod links", target: ref.PodTarget, client: ref.in(ref.ClientPod)},
	}
	for _, p := range []struct {
		name, from, to string
		aim            float64
	}{
		{"gateway pod → gateway pod", gateway(c1), gateway(c2), 0.95},
		{"worker pod → worker pod", worker(c1), worker(c2), 0.80},
	} {
		ip, err := l.Kubectl(ctx, "--context", c2.Name, "-n", "sample", "get", "pod", "server-"+p.to, "-o", "jsonpath={.status.podIP}")
		if err != nil {
			return nil, nil, fmt.Errorf("address of the server on %s: %w", p.to, err)
		}
		paths = append(paths, path{Name: p.name, Aim: p.aim, target: string(ip) + ":8080", client: inPod(l, c1, "client-"+p.from)})
	}
	for range rounds {
		for i := range paths {
			if err := paths[i].measure(ctx, duration); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", paths[i].Name, err)
			}
		}
	}
	return paths, ref.memory(), nil
}

func (r *reference) in(netns string) func(context.Context, ...string) (string, error) {
	return func(ctx context.Context, args ...string) (string, error) {
		return command(ctx, "nsenter", append([]string{"--net=/run/netns/" + netns, "--", r.Program}, args...)...)
	}
}

func inPod(l *lab.Lab, c lab.Cluster, pod string) func(context.Context, ...string) (string, error) {
	return func(ctx context.Context, args ...string) (string, error) {
		out, err := l.Kubectl(ctx, append([]string{"--context", c.Name, "-n", "sample", "exec", pod, "--", "/client"}, args...)...)
		return strings.TrimSpace(string(out)), err
	}
}

func (p *path) measure(ctx context.Context, duration time.Duration) error {
	rtt, err := p.number(ctx, "rtt", p.target)
	if err != nil {
		return err
	}
	one, err := p.number(ctx, "bulk", "-duration="+duration.String(), "-streams=1", p.target)
	if err != nil {
		return err
	}
	four, err := p.number(ctx, "bulk", "-duration="+duration.String(), "-streams=4", p.target)
	if err != nil {
		return err
	}
	p.RTT, p.One, p.Four = append(p.RTT, rtt), append(p.One, one/1e6), append(p.Four, four/1e6)
	fmt.Printf("%s: one flow %.0f Mbit/s, four flows %.0f Mbit/s, RTT %.0f us\n", p.Name, one/1e6, four/1e6, rtt)
	return nil
}

func (p *path) number(ctx context.Context, args ...string) (float64, error) {
	out, err := p.client(ctx, args...)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseFloat(out, 64)
	if err != nil {
		return 0, fmt.Errorf("client %s: expected a number, found %q", args[0], out)
	}
	return n, nil
}
