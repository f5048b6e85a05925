// SPDX-License-Identifier: Apache-2.0

// Command agent measures what the imports of a cluster cost its cluster agent: a real API server, the real process, and
// Bundles as the broker writes them. It prints a table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sealane-io/sealane/e2e/fleet"
	"github.com/sealane-io/sealane/e2e/lab"
)

type options struct {
	size     fleet.Size
	shards   int
	changes  int
	profiles string
	patience time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetLogger(logr.Discard())
	var o options
	flag.IntVar(&o.size.Services, "services", 10_000, "services that are imported, each from two clusters with three pods")
	flag.IntVar(&o.size.Clusters, "clusters", 10, "clusters that export them")
	flag.IntVar(&o.size.Namespaces, "namespaces", 100, "namespaces that they are in")
	flag.IntVar(&o.shards, "shards", 64, "shards of the ClusterSet")
	flag.IntVar(&o.changes, "changes", 100, "endpoints that are changed, one after the other")
	flag.DurationVar(&o.patience, "patience", 7*time.Minute, "how long the imports may take")
	flag.StringVar(&o.profiles, "profiles", "", "directory for profiles of the agent; empty is none")
	flag.Parse()
	o.size.Exporters, o.size.Backends = 2, 3
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "agent: failed: %v\n", err)
		os.Exit(1)
	}
}

// session is a member with an agent.
type session struct {
	options
	*member
	program, dir string
	// objects that the member has without imports.
	before counts
	agent  *process
}

func run(ctx context.Context, o options) error {
	root, err := lab.SourceRoot(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sealane-agent-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s := &session{options: o, dir: dir}
	if s.program, err = build(ctx, root, dir); err != nil {
		return err
	}
	bundles, err := o.size.Bundles(int32(o.shards))
	if err != nil {
		return err
	}
	if s.member, err = newMember(ctx, o.size); err != nil {
		return err
	}
	defer s.api.Stop()
	defer func() {
		if s.agent != nil {
			s.agent.stop()
		}
	}()
	fmt.Printf("%d services in %d namespaces, %d Bundles\n\n", o.size.Services, o.size.Namespaces, len(bundles))
	fmt.Println("| | took | processor | RSS, MB | at most | of a file | writes |\n|---|---|---|---|---|---|---|")
	steps := []func(context.Context) error{s.empty, s.fill(bundles), s.rest, s.change(bundles), s.again}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return errors.Join(err, s.agentEnded())
		}
	}
	return nil
}

func (s *session) agentEnded() error {
	if s.agent == nil {
		return nil
	}
	select {
	case <-s.agent.done:
		return s.agent.ended()
	default:
		return nil
	}
}

// measured takes what the agent and the API server have done during a part, and prints it: of each of so many changes.
func (s *session) measured(ctx context.Context, what string, changes int, part func() error) error {
	before, err := s.agent.usage()
	if err != nil {
		return err
	}
	writes, err := s.writes(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := part(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	took := time.Since(begun)
	after, err := s.agent.usage()
	if err != nil {
		return err
	}
	now, err := s.writes(ctx)
	if err != nil {
		return err
	}
	var text []string
	for w, n := range now {
		if n > writes[w] {
			text = append(text, fmt.Sprintf("%s %s %.4g", w.verb, w.resource, (n-writes[w])/float64(changes)))
		}
	}
	slices.Sort(text)
	megabytes := func(kib int64) float64 { return float64(kib) * 1024 / 1e6 }
	fmt.Printf("| %s | %s | %.2f ms | %.0f | %.0f | %.0f | %s |\n", what,
		(took / time.Duration(changes)).Round(time.Millisecond),
		float64((after.cpu-before.cpu).Microseconds())/1000/float64(changes), megabytes(after.rss), megabytes(after.peak),
		megabytes(after.files), join(text))
	return nil
}

func (s *session) startAgent(ctx context.Context) error {
	dir, err := os.MkdirTemp(s.dir, "run-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	if s.agent, err = s.start(ctx, s.program, dir, s.profiles != ""); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	return nil
}

func (s *session) empty(ctx context.Context) error {
	if err := s.startAgent(ctx); err != nil {
		return err
	}
	if err := s.Create(ctx, s.size.Peering(int32(s.shards))); err != nil {
		return fmt.Errorf("create the Peering: %w", err)
	}
	return s.measured(ctx, "start without imports", 1, func() (err error) {
		if err := s.quiet(ctx); err != nil {
			return err
		}
		s.before, err = s.counts(ctx)
		return err
	})
}

// quiet waits until the agent uses next to nothing.
func (s *session) quiet(ctx context.Context) error {
	const span, next = 3 * time.Second, 60 * time.Millisecond
	last, err := s.agent.usage()
	for err == nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.agent.done:
			return s.agent.ended()
		case <-time.After(span):
		}
		var now usage
		if now, err = s.agent.usage(); now.cpu-last.cpu < next {
			return err
		}
		last = now
	}
	return err
}

// rest is what the agent uses while nothing happens, and what it keeps.
func (s *session) rest(ctx context.Context) error {
	const seconds = 20
	if err := s.profile(ctx, "rest", "heap"); err != nil {
		return err
	}
	return s.measured(ctx, fmt.Sprintf("each of %d s without a change", seconds), seconds, func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(seconds * time.Second):
			return nil
		}
	})
}

// again is another agent with all that the first has made.
func (s *session) again(ctx context.Context) error {
	s.agent.stop()
	if err := s.startAgent(ctx); err != nil {
		return err
	}
	if err := s.measured(ctx, "a restart", 1, func() error { return s.quiet(ctx) }); err != nil {
		return err
	}
	return s.rest(ctx)
}

// profile asks an agent that tells of itself.
func (s *session) profile(ctx context.Context, name, what string) error {
	if s.profiles == "" {
		return nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+profilesAt+"/debug/pprof/"+what, nil)
	if err != nil {
		return fmt.Errorf("take a profile: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("take a profile: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	out, err := os.Create(filepath.Join(s.profiles, name+".pprof"))
	if err != nil {
		return fmt.Errorf("take a profile: %w", err)
	}
	_, err = out.ReadFrom(resp.Body)
	return errors.Join(err, out.Close())
}
