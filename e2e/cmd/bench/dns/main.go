// SPDX-License-Identifier: Apache-2.0

// Command dns measures Sealane's DNS beside CoreDNS's own kubernetes plugin, whose multicluster zones answer
// the same names: both in this process, in one run, from the objects of one real API server. It writes the
// figures as text.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sealane-io/sealane/internal/apiserver"
)

// options are the command's flags.
type options struct {
	out, imports string
	rounds       int
	duration     time.Duration
	// crds are directories of them.
	crds []string
}

// findCRDs finds those of Sealane and of the MCS API.
func (o *options) findCRDs() error {
	own, err := apiserver.CRDs()
	mcs, mcsErr := apiserver.MCSCRDs()
	o.crds = []string{own, mcs}
	return errors.Join(err, mcsErr)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.out, "out", "docs/benchmarks/dns.txt", "where the figures go")
	flag.StringVar(&o.imports, "imports", "10,1000,10000", "numbers of imports")
	flag.IntVar(&o.rounds, "rounds", 15, "measurements of each server, which take turns; the median counts")
	flag.DurationVar(&o.duration, "duration", 300*time.Millisecond, "length of one measurement")
	flag.Parse()
	err := o.findCRDs()
	if err == nil {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: failed: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	w := newWiring()
	var results []result
	for field := range strings.SplitSeq(o.imports, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 4 {
			return fmt.Errorf("--imports: %q is not a number from 4 on", field)
		}
		fmt.Printf("%d imports\n", n)
		r, err := measure(ctx, w, n, o)
		if err != nil {
			return fmt.Errorf("with %d imports: %w", n, err)
		}
		results = append(results, r)
	}
	if err := os.WriteFile(o.out, []byte(report(o, results)), 0o600); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	return os.Chmod(o.out, 0o644)
}

// result is what was measured with one number of imports.
type result struct {
	imports int
	// heap that the plugins need for them, in octets.
	sealaneHeap, stockHeap int64
	rows                   []comparison
}

// comparison of both servers in one kind of query.
type comparison struct {
	kind           string
	sealane, stock []sample
}

// measure runs an API server with n imports and both servers, asks them in turns and stops all three.
func measure(ctx context.Context, w *wiring, n int, o options) (r result, err error) {
	s, err := apiserver.Launch(ctx, o.crds...)
	if err != nil {
		return r, err
	}
	defer s.Stop()
	if err := populate(ctx, s.Config, n); err != nil {
		return r, err
	}
	kubeconfig, err := writeKubeconfig(s.Config)
	if err != nil {
		return r, err
	}
	defer func() { _ = os.Remove(kubeconfig) }()
	r.imports = n
	sealane, heap, err := w.start(ctx, n, "lighthouse {\n kubeconfig "+kubeconfig+"\n }")
	if err != nil {
		return r, fmt.Errorf("start sealane-dns: %w", err)
	}
	defer sealane.stop()
	r.sealaneHeap = heap
	stock, heap, err := w.start(ctx, n, "kubernetes "+zone+" {\n kubeconfig "+kubeconfig+"\n multicluster "+zone+"\n }")
	if err != nil {
		return r, fmt.Errorf("start the kubernetes plugin: %w", err)
	}
	defer stock.stop()
	r.stockHeap = heap
	for _, k := range kinds() {
		for _, network := range []bool{false, true} {
			c, err := compare(ctx, sealane, stock, k, network, n, o)
			if err != nil {
				return r, err
			}
			r.rows = append(r.rows, c)
		}
	}
	return r, nil
}

// compare asks both servers the same, in turns.
func compare(ctx context.Context, sealane, stock *instance, k kind, network bool, n int, o options) (comparison, error) {
	c := comparison{kind: k.says + ", in the process"}
	ask := (*instance).inProcess
	if network {
		c.kind, ask = k.says+", over UDP", (*instance).overUDP
	}
	queries := k.queries(n)
	for range o.rounds {
		one, err := ask(sealane, ctx, queries, o.duration)
		if err != nil {
			return c, fmt.Errorf("sealane-dns, %s: %w", c.kind, err)
		}
		other, err := ask(stock, ctx, queries, o.duration)
		if err != nil {
			return c, fmt.Errorf("the kubernetes plugin, %s: %w", c.kind, err)
		}
		c.sealane, c.stock = append(c.sealane, one), append(c.stock, other)
	}
	return c, nil
}
