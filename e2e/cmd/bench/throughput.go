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
	// Aim is the least ratio to the reference with pod links; zero for a reference.
	Aim float64
	// One and Four are the throughputs of as many TCP flows in Mbit/s, RTT in microseconds, one per round.
	One, Four, RTT []float64
	// Cost is the processor time of all programs on the way per gigabyte of one flow, in seconds.
	Cost []float64

	ends ends
	// client runs the client program where the path begins.
	client func(ctx context.Context, args ...string) (string, error)
	target string
}

// openReference wires the reference on the lab's network, where the gateways are.
func openReference(ctx context.Context, l *lab.Lab) (*reference, func(), error) {
	c1, c2 := l.Topology.Clusters[0], l.Topology.Clusters[1]
	e, err := endsOf(l, gateway(c1), gateway(c2), gateway(c1), gateway(c2))
	if err != nil {
		return nil, nil, err
	}
	wires := [2]wire{wireOf(l, gateway(c1), "br1"), wireOf(l, gateway(c2), "br2")}
	ref, err := newReference(ctx, strings.TrimSuffix(l.Netns(""), "-"), wires, e)
	if err != nil {
		return nil, nil, fmt.Errorf("wire the reference: %w", err)
	}
	return ref, func() { //nolint:contextcheck // what ended the context must not keep it
		if err := ref.Close(); err != nil {
			fmt.Println("remove the reference:", err) // what is left goes with the lab
		}
	}, nil
}

// pathsOf are those of the reference, and those of pods in the lab.
func pathsOf(ctx context.Context, l *lab.Lab, ref *reference) ([]path, error) {
	c1, c2 := l.Topology.Clusters[0], l.Topology.Clusters[1]
	paths := []path{
		{Name: "reference", ends: ref.ends, target: ref.Target, client: ref.in(ref.Client)},
		{Name: "reference with pod links", ends: ref.ends, target: ref.PodTarget, client: ref.in(ref.ClientPod)},
	}
	for _, p := range []struct {
		name, from, to string
		aim            float64
	}{
		{"gateway pod → gateway pod", gateway(c1), gateway(c2), 0.95},
		{"worker pod → worker pod", worker(c1), worker(c2), 0.90},
	} {
		ip, err := l.Kubectl(ctx, "--context", c2.Name, "-n", "sample", "get", "pod", "server-"+p.to, "-o",
			"jsonpath={.status.podIP}")
		if err != nil {
			return nil, fmt.Errorf("address of the server on %s: %w", p.to, err)
		}
		e, err := endsOf(l, gateway(c1), gateway(c2), p.from, p.to)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path{Name: p.name, Aim: p.aim, ends: e, target: string(ip) + ":8080",
			client: inPod(l, c1, "client-"+p.from)})
	}
	return paths, nil
}

// throughput measures the paths in turns, so that a change in the machine's mood meets all of them.
func throughput(ctx context.Context, paths []path, rounds int, duration time.Duration) ([]path, error) {
	for range rounds {
		for i := range paths {
			if err := paths[i].measure(ctx, duration); err != nil {
				return nil, fmt.Errorf("%s: %w", paths[i].Name, err)
			}
		}
	}
	return paths, nil
}

// wireOf is a free address on the wire of a node.
func wireOf(l *lab.Lab, node, bridge string) wire {
	address := l.NodeAddress(node, lab.IPv4)
	subnet := address[:strings.LastIndex(address, ".")]
	return wire{Netns: l.Netns("ul"), Bridge: bridge, Address: subnet + ".200", Router: subnet + ".1"}
}

// in returns what runs the client program in a namespace, in the cgroup of a pod's.
func (r *reference) in(netns string) func(context.Context, ...string) (string, error) {
	return func(ctx context.Context, args ...string) (string, error) {
		const script = `until [ "$1" = in ]; do echo $$ >"$1"; shift; done; shift; exec nsenter "$@"`
		argv := append([]string{"-c", script, "sh"}, r.ends.Client.members()...)
		argv = append(argv, "in", "--net=/run/netns/"+netns, "--", r.Program)
		return command(ctx, "sh", append(argv, args...)...)
	}
}

func inPod(l *lab.Lab, c lab.Cluster, pod string) func(context.Context, ...string) (string, error) {
	return func(ctx context.Context, args ...string) (string, error) {
		out, err := l.Kubectl(ctx, append([]string{"--context", c.Name, "-n", "sample", "exec", pod, "--", "/client"},
			args...)...)
		return strings.TrimSpace(string(out)), err
	}
}

func (p *path) measure(ctx context.Context, duration time.Duration) error {
	rtt, err := p.number(ctx, "rtt", p.target)
	if err != nil {
		return err
	}
	before, err := p.ends.used()
	if err != nil {
		return err
	}
	one, err := p.number(ctx, "bulk", "-duration="+duration.String(), "-streams=1", p.target)
	if err != nil {
		return err
	}
	after, err := p.ends.used()
	if err != nil {
		return err
	}
	cost := (after - before).Seconds() / (one / 8e9 * duration.Seconds())
	four, err := p.number(ctx, "bulk", "-duration="+duration.String(), "-streams=4", p.target)
	if err != nil {
		return err
	}
	p.RTT, p.One, p.Four = append(p.RTT, rtt), append(p.One, one/1e6), append(p.Four, four/1e6)
	p.Cost = append(p.Cost, cost)
	fmt.Printf("%s: one flow %.0f Mbit/s at %.2f s/GB, four flows %.0f Mbit/s, RTT %.0f us\n", p.Name, one/1e6, cost,
		four/1e6, rtt)
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
