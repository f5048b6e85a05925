// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
)

// The traffic of one round: it begins, the fault happens a while later, and it goes on.
const (
	traffic = 10 * time.Second
	before  = 3 * time.Second
)

// seen is what one flow saw in one round.
type seen struct {
	datagrams struct {
		sent, lost int
		gap        time.Duration
	}
	// stream is a connection to the pod, service one through the ClusterSetIP.
	stream, service connection
	connects        struct {
		made, failed int
		slowest      time.Duration
	}
}

// connection is a TCP connection with a request every 20 ms, which is made anew where it ended.
type connection struct {
	connections, resets int
	gap                 time.Duration
}

// course is what a flow goes from and to, and what of the traffic it has.
type course struct {
	// from is the node of the client, to that of the server.
	from, to string
	// services are connections through the ClusterSetIP, connects new connections.
	services, connects bool
}

// row is what a fault did, over all flows and rounds.
type row struct {
	Fault string
	// Gap and Stall are the longest silences of the datagrams and of the TCP connection: the median over rounds and flows,
	// and the most. Reference are the medians within a node.
	Gap, GapMost, Stall, StallMost, ReferenceGap, ReferenceStall time.Duration
	// Service and ServiceMost are as Stall, of the connections through a ClusterSetIP.
	Service, ServiceMost time.Duration
	// Lost is the median of datagrams lost, of Sent.
	Lost, Sent int
	// Ended are the TCP connections that did not live to the end, of Streams.
	Ended, Streams int
	// Failed of Made new connections, of which the slowest took Slowest.
	Failed, Made int
	Slowest      time.Duration
}

// measure lets each fault happen some times, to one gateway after the other. Done is told all figures after each.
func measure(ctx context.Context, l *lab.Lab, only string, rounds int, done func([]row) error) error {
	gateways := []string{"c1-gw1", "c2-gw2", "c1-gw2", "c2-gw1"}
	var rows []row
	for _, f := range faults() {
		if only != "" && !slices.Contains(strings.Split(only, ";"), f.name) {
			continue
		}
		r := row{Fault: f.name}
		var all, reference []seen
		for round := range rounds {
			node := gateways[round%len(gateways)]
			if err := settle(ctx, l); err != nil {
				return fmt.Errorf("before %s of %s: %w", f.name, node, err)
			}
			flows, within, err := during(ctx, l, f, node)
			if errors.Is(err, errSaidNothing) {
				fmt.Printf("%s of %s, once more: %v\n", f.name, node, err)
				if err = settle(ctx, l); err == nil {
					flows, within, err = during(ctx, l, f, node)
				}
			}
			if err != nil {
				return fmt.Errorf("%s of %s: %w", f.name, node, err)
			}
			all, reference = append(all, flows...), append(reference, within)
			for _, s := range flows {
				fmt.Printf("%s of %s: %+v\n", f.name, node, s)
			}
		}
		r.sum(all, reference)
		fmt.Printf("%+v\n", r)
		rows = append(rows, r)
		if err := done(rows); err != nil {
			return err
		}
	}
	return nil
}

// during runs the traffic, and the fault in the middle of it.
func during(ctx context.Context, l *lab.Lab, f fault, node string) (flows []seen, within seen, err error) {
	here, there := clusterOf(node), map[string]string{"c1": "c2", "c2": "c1"}[clusterOf(node)]
	// The last is for reference.
	courses := []course{
		{from: here + "-worker", to: there + "-worker", services: true, connects: true},
		{from: there + "-worker", to: here + "-worker", services: true, connects: true},
		{from: sibling(node), to: there + "-worker"},
		{from: there + "-worker", to: there + "-worker"},
	}
	if f.deaf {
		courses = courses[1:]
		courses = slices.DeleteFunc(courses, func(c course) bool { return clusterOf(c.from) == here })
	}
	length := cmp.Or(f.traffic, traffic)
	results, errs := make([]seen, len(courses)), make([]error, len(courses))
	var group sync.WaitGroup
	for i, c := range courses {
		group.Go(func() { results[i], errs[i] = flow(ctx, l, c, length) })
	}
	err = wait(ctx, before)
	if err == nil {
		err = f.do(ctx, l, node)
	}
	group.Wait()
	err = errors.Join(err, f.repair(context.WithoutCancel(ctx), l, node), errors.Join(errs...))
	last := len(results) - 1
	return results[:last], results[last], err
}

// errSaidNothing is of a client that ended without a word: kubectl exec may lose what a process says last.
var errSaidNothing = errors.New("the client said nothing")

// flow runs the traffic of a course.
func flow(ctx context.Context, l *lab.Lab, c course, length time.Duration) (seen, error) {
	server := "server-" + c.to
	ip, err := l.Kubectl(ctx, "--context", clusterOf(c.to), "-n", "sample", "get", "pod", server, "-o",
		"jsonpath={.status.podIP}")
	if err != nil {
		return seen{}, err
	}
	target := string(ip) + ":8080"
	var s seen
	var errs [4]error
	var group sync.WaitGroup
	ask := func(i int, what, target string, format string, into ...any) {
		group.Go(func() {
			// A connection that did not live to the end is told by the exit code too.
			out, err := l.Kubectl(ctx, "--context", clusterOf(c.from), "-n", "sample", "exec", "client-"+c.from, "--",
				"/client", what, "-duration="+length.String(), target)
			line, _, _ := strings.Cut(string(out), "\n")
			if line == "" {
				errs[i] = errors.Join(errSaidNothing, err)
				return
			}
			if _, scanErr := fmt.Sscanf(line, format, into...); scanErr != nil {
				errs[i] = fmt.Errorf("client %s: expected %q, found %q: %w", what, format, out, errors.Join(scanErr, err))
			}
		})
	}
	const stream = "connections=%d resets=%d longest-gap=%s"
	gaps := [4]string{"0s", "0s", "0s", "0s"}
	ask(0, "flow", target, "sent=%d lost=%d longest-gap=%s", &s.datagrams.sent, &s.datagrams.lost, &gaps[0])
	ask(1, "tcp", target, stream, &s.stream.connections, &s.stream.resets, &gaps[1])
	if c.connects {
		ask(2, "connects", target, "made=%d failed=%d slowest=%s", &s.connects.made, &s.connects.failed, &gaps[2])
	}
	if c.services {
		ip, err := clusterSetIP(ctx, l, clusterOf(c.from), server)
		if err != nil {
			errs[3] = err
		} else {
			ask(3, "tcp", ip+":80", stream, &s.service.connections, &s.service.resets, &gaps[3])
		}
	}
	group.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return seen{}, err
	}
	for i, d := range []*time.Duration{&s.datagrams.gap, &s.stream.gap, &s.connects.slowest, &s.service.gap} {
		if *d, err = time.ParseDuration(gaps[i]); err != nil {
			return seen{}, err
		}
	}
	return s, nil
}

// clusterSetIP is the address by which a cluster reaches a service that another exports.
func clusterSetIP(ctx context.Context, l *lab.Lab, cluster, service string) (string, error) {
	ip, err := l.Kubectl(ctx, "--context", cluster, "-n", "sample", "get", "serviceimport", service, "-o",
		"jsonpath={.spec.ips[0]}")
	if err == nil && len(ip) == 0 {
		err = fmt.Errorf("expected a ClusterSetIP of %s in %s, found none", service, cluster)
	}
	return string(ip), err
}

// sum sums up what the flows between clusters saw, and those within a node.
func (r *row) sum(flows, reference []seen) {
	var gaps, stalls, services []time.Duration
	var lost []int
	for _, s := range flows {
		gaps, stalls, lost = append(gaps, s.datagrams.gap), append(stalls, s.stream.gap), append(lost, s.datagrams.lost)
		r.Sent = max(r.Sent, s.datagrams.sent)
		r.count(s.stream)
		if s.service.connections > 0 {
			services = append(services, s.service.gap)
			r.count(s.service)
		}
		r.Failed, r.Made = r.Failed+s.connects.failed, r.Made+s.connects.made
		r.Slowest = max(r.Slowest, s.connects.slowest)
	}
	slices.Sort(lost)
	r.Gap, r.GapMost = middle(gaps)
	r.Stall, r.StallMost = middle(stalls)
	r.Service, r.ServiceMost = middle(services)
	r.Lost = lost[len(lost)/2]
	var within, withinStalls []time.Duration
	for _, s := range reference {
		within, withinStalls = append(within, s.datagrams.gap), append(withinStalls, s.stream.gap)
	}
	r.ReferenceGap, _ = middle(within)
	r.ReferenceStall, _ = middle(withinStalls)
}

// count counts a connection that was to live to the end.
func (r *row) count(c connection) {
	r.Streams++
	if c.connections != 1 || c.resets != 0 {
		r.Ended++
	}
}

// middle returns the median and the most.
func middle(ds []time.Duration) (median, most time.Duration) {
	slices.Sort(ds)
	return ds[len(ds)/2], ds[len(ds)-1]
}

// write replaces the file of the figures.
func write(file string, rows []row, rounds int) error {
	var b strings.Builder
	fmt.Fprintf(&b, `# When a gateway fails

Made by `+"`make bench-failover`"+`: the lab of e2e/topologies/ha.yaml, two clusters with two gateways and a worker
each, all on one machine's processors, WireGuard in-process, probes as by default (50 ms, 3 of them). Between
pods on the workers of the two clusters, in both directions at once: a datagram every 5 ms to an echo, one TCP
connection with a request every 20 ms to the pod and one through the ClusterSetIP of its service, and 100 new
connections a second. From a pod on the other gateway to a worker: datagrams and a TCP connection. Each fault happened
%d times, to one gateway after the other, and all flows count, also where one went by the other gateway. The last two
columns are the same traffic between two pods of one node at the same time, which no fault touches: what the
machine itself adds.

| fault of one gateway | silence of datagrams: median, most | lost, median | TCP stall: median, most | `+
		`by ClusterSetIP | TCP connections ended | new connections failed | the slowest | `+
		`within a node: datagrams | TCP |
|---|---|---|---|---|---|---|---|---|---|
`, rounds)
	ms := func(d time.Duration) int64 { return d.Milliseconds() }
	for _, r := range rows {
		fmt.Fprintf(&b,
			"| %s | %d, %d ms | %d of %d | %d, %d ms | %d, %d ms | %d of %d | %d of %d | %d ms | %d ms | %d ms |\n",
			r.Fault, ms(r.Gap), ms(r.GapMost), r.Lost, r.Sent, ms(r.Stall), ms(r.StallMost), ms(r.Service),
			ms(r.ServiceMost), r.Ended, r.Streams, r.Failed, r.Made+r.Failed, ms(r.Slowest), ms(r.ReferenceGap),
			ms(r.ReferenceStall))
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}
