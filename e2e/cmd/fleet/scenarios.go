// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/sealane-io/sealane/e2e/fleet"
)

// The scenarios by the names that the goals know them by.
const (
	converge = "converge from empty"
	firstPod = "a pod of each of some services is replaced for the first time"
	onePod   = "a pod is replaced"
	everyPod = "a pod of each service is replaced at once"
	slowRate = "10 pods a second"
	fastRate = "100 pods a second"
	quiet    = "a quiet cluster beside one with 100 pods a second"
	move     = "a gateway has another address"
	publish  = "one policy exports all within a minute"
	restart  = "the controller restarts"
	failOver = "a second replica takes over"
	itsRoll  = "and its roll call"
	slowAPI  = "each request takes"
	compact  = "10 pods a second while etcd is compacted and defragmented"
	silent   = "Karmada does not reach some"
	heard    = "it reaches them again"
	apart    = "every second cluster leaves"
	killed   = "the controller is killed while they join again"
)

// silentMost is how many clusters Karmada does not reach, or half of them where there are few, while pods are replaced
// at a rate.
const silentMost, silentRate = 10, 2

// few are the pods that are replaced where the API is slow.
const few = 5

// callsTake is how long after its start a controller may call members: it writes each Work once more, half a minute to
// a minute after the cluster has come into sight (ADR 27). Whatever is measured meanwhile has these writes, too.
const callsTake = 65 * time.Second

// session is a fleet with the controller that leads.
type session struct {
	*table
	f        *fleet.Fleet
	b        *fleet.Broker
	programs fleet.Programs
	dir      string
}

// measure runs all scenarios with one fleet, and ends all that it has started.
func (t *table) measure(ctx context.Context, o options, programs fleet.Programs, dir string) error {
	f, err := fleet.Launch(ctx, t.Size)
	if err != nil {
		return err
	}
	defer f.Stop()
	if err := f.Reach(ctx); err != nil {
		return err
	}
	if err := f.StartAgents(ctx, programs, dir); err != nil {
		return err
	}
	s := &session{table: t, f: f, programs: programs, dir: dir}
	if s.b, err = s.start(ctx, ""); err != nil {
		return err
	}
	defer func() { s.b.Kill() }()
	if err := s.changes(ctx, o); err != nil {
		return err
	}
	if err := s.faults(ctx, o); err != nil {
		return err
	}
	if err := f.Answers(ctx); err != nil {
		return err
	}
	t.Logged, err = f.AgentErrors()
	return err
}

// changes measures what happens while all is well, as far as it is asked for. It begins with what all else needs.
func (s *session) changes(ctx context.Context, o options) error {
	f := s.f
	for _, x := range []struct {
		name string
		do   func() ([]*fleet.Arrival, error)
	}{
		{converge, s.connect(ctx)},
		{"and the roll call after that", rollCall(ctx)},
		{firstPod, f.Change(ctx, o.changes)},
		{onePod, f.Change(ctx, o.changes)},
		{everyPod, f.ChangeAll},
		{slowRate, f.Churn(ctx, 10, o.churn)},
		{fastRate, f.Churn(ctx, 100, o.churn)},
		{quiet, f.Noise(ctx, 100, o.churn)},
		{"a cluster's pods go", f.Withdraw(0, true)},
		{"they return", f.Withdraw(0, false)},
		{move, f.MoveGateway(1)},
		{"a cluster leaves", f.Leave(ctx, 2)},
		{"it joins again", f.Join(ctx, 2)},
		{"nothing is exported any more", f.Unpublish},
		{publish, f.Publish(ctx, time.Minute)},
		{compact, f.ChurnCompacted(ctx, 10, o.churn)},
	} {
		if x.name != converge && !o.only.MatchString(x.name) {
			continue
		}
		run := func() error { return s.add(f.Run(ctx, s.b, x.name, x.do)) }
		if err := s.profiled(ctx, o.profiles, x.name, run); err != nil {
			return err
		}
	}
	return nil
}

// faults measures what happens while something is not, as far as it is asked for, and how much etcd has before the API
// is slow.
func (s *session) faults(ctx context.Context, o options) error {
	for _, x := range []struct {
		name string
		do   func() error
	}{
		{silent, func() error { return s.silence(ctx, o.silence) }},
		{killed, func() error { return s.killed(ctx) }},
		{restart, func() error { return s.restart(ctx) }},
		{failOver, func() error { return s.failOver(ctx) }},
		{itsRoll, func() error { return s.add(s.f.Run(ctx, s.b, itsRoll, rollCall(ctx))) }},
	} {
		if !o.only.MatchString(x.name) {
			continue
		}
		if err := x.do(); err != nil {
			return err
		}
	}
	api, err := s.f.API(ctx)
	if err != nil {
		return err
	}
	s.Stored = api.Stored
	if !o.only.MatchString(slowAPI) {
		return nil
	}
	if err := s.slow(ctx, fmt.Sprintf(slowAPI+" %s more: a pod is replaced", o.slow), o.slow, 0); err != nil {
		return err
	}
	return s.slow(ctx, "and every 20th fails", o.slow, 20)
}

// silence has Karmada lose members, most of which are in pairs the only exporters of some services, while pods of all
// members are replaced.
func (s *session) silence(ctx context.Context, length time.Duration) error {
	var members []int
	for n := s.Size.Clusters - 1; n > 0 && len(members) < silentMost; n -= 2 {
		members = append(members, n, (n+s.Size.Clusters/2)%s.Size.Clusters)
	}
	members = members[:min(silentMost, s.Size.Clusters/2)]
	lose := func() ([]*fleet.Arrival, error) {
		if err := s.f.Silence(ctx, members...); err != nil {
			return nil, err
		}
		return s.f.Churn(ctx, silentRate, length)()
	}
	if err := s.add(s.f.Run(ctx, s.b, fmt.Sprintf("%s: %d clusters, for %s", silent, len(members), length),
		lose)); err != nil {
		return err
	}
	hear := func() ([]*fleet.Arrival, error) {
		if err := s.f.Hear(ctx, members...); err != nil {
			return nil, err
		}
		return nil, s.f.Complete(ctx, s.b)
	}
	if err := s.add(s.f.Run(ctx, s.b, heard, hear)); err != nil {
		return err
	}
	return s.add(s.f.Run(ctx, s.b, "and calls the roll of them", rollCall(ctx)))
}

// killed kills the controller when half of what half of the fleet needs is written, and starts another.
func (s *session) killed(ctx context.Context) error {
	var members []int
	for n := 1; n < s.Size.Clusters; n += 2 {
		members = append(members, n)
	}
	works, err := s.f.Works(ctx, members...)
	if err != nil {
		return err
	}
	if err := s.add(s.f.Run(ctx, s.b, apart, s.f.Leave(ctx, members...))); err != nil {
		return err
	}
	begun := time.Now()
	if _, err := s.f.Join(ctx, members...)(); err != nil {
		return err
	}
	if err := s.f.Written(ctx, works/2); err != nil {
		return err
	}
	before := s.f.Tally.Take()
	s.b.Kill()
	next, err := s.start(ctx, "")
	if err != nil {
		return err
	}
	s.b = next
	until := time.Since(begun)
	row, err := s.f.Run(ctx, s.b, killed, func() ([]*fleet.Arrival, error) { return nil, s.f.Complete(ctx, s.b) })
	if err != nil {
		return err
	}
	row.Took, row.Load = row.Took+until, row.Load+until
	row.Writes, row.Bytes = row.Writes+before.Writes, row.Bytes+before.Bytes
	row.Deltas, row.Listings = row.Deltas+before.Deltas, row.Listings+before.Listings
	used, err := s.b.Usage(ctx)
	row.CPU, row.Requests = used.CPU, used.Requests
	return s.add(row, err)
}

// profileLength is for how long the API server is profiled at most.
const profileLength = 15 * time.Second

// profiled runs a scenario, and leaves profiles in a directory, if there is one: of the API server's first seconds of
// it, and of the controller's memory at its end.
func (s *session) profiled(ctx context.Context, dir, name string, run func() error) error {
	if dir == "" {
		return run()
	}
	profile := make(chan error, 1)
	path := filepath.Join(dir, fmt.Sprintf("%d clusters, %s", s.Size.Clusters, name))
	go func() { profile <- s.f.Profile(ctx, path+".pprof", profileLength) }()
	err := run()
	return errors.Join(err, <-profile, s.b.Profile(ctx, path+", memory.pprof"))
}

// connect makes one ClusterSet of the fleet, and waits until all are told of all.
func (s *session) connect(ctx context.Context) func() ([]*fleet.Arrival, error) {
	return func() ([]*fleet.Arrival, error) {
		if err := s.f.Connect(ctx); err != nil {
			return nil, err
		}
		return nil, s.f.Complete(ctx, s.b)
	}
}

// rollCall waits until a controller that has just begun has called all members.
func rollCall(ctx context.Context) func() ([]*fleet.Arrival, error) {
	return func() ([]*fleet.Arrival, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(callsTake):
			return nil, nil
		}
	}
}

// start starts a controller, by another address of the API if there is one.
func (s *session) start(ctx context.Context, api string) (*fleet.Broker, error) {
	start := func() (*fleet.Broker, error) { return s.f.Start(ctx, s.programs.Controller, s.dir) }
	if api != "" {
		start = func() (*fleet.Broker, error) { return s.f.StartBy(ctx, s.programs.Controller, s.dir, api) }
	}
	b, err := start()
	if err != nil {
		return nil, err
	}
	if err := b.Ready(ctx); err != nil {
		b.Kill()
		return nil, err
	}
	return b, nil
}

// restart ends the controller and starts it again: how long until it is ready, and what it writes.
func (s *session) restart(ctx context.Context) error {
	s.b.Stop()
	begun := time.Now()
	next, err := s.start(ctx, "")
	if err != nil {
		return err
	}
	s.b = next
	return s.settle(ctx, restart, begun)
}

// failOver kills the controller while another one stands by: how long until that has looked at everything.
func (s *session) failOver(ctx context.Context) error {
	next, err := s.start(ctx, "")
	if err != nil {
		return err
	}
	begun := time.Now()
	s.b.Kill()
	s.b = next
	return s.settle(ctx, failOver, begun)
}

func (s *session) settle(ctx context.Context, name string, begun time.Time) error {
	var settled time.Duration
	row, err := s.f.Run(ctx, s.b, name, func() ([]*fleet.Arrival, error) {
		err := s.b.Settled(ctx)
		settled = time.Since(begun)
		return nil, err
	})
	if err != nil {
		return err
	}
	// Of a process that has just started all that it has used counts.
	used, err := s.b.Usage(ctx)
	row.Took, row.CPU, row.Requests = settled, used.CPU, used.Requests
	return s.add(row, err)
}

// slow has a controller work with an API that is slow, and fails now and then.
func (s *session) slow(ctx context.Context, name string, delay time.Duration, failing int64) error {
	s.b.Stop()
	api, end, err := s.f.Slow(ctx, delay, failing)
	if err != nil {
		return err
	}
	defer end()
	next, err := s.start(ctx, api)
	if err != nil {
		return err
	}
	s.b = next
	if err := next.Settled(ctx); err != nil {
		return err
	}
	if err := s.add(s.f.Run(ctx, next, name, s.f.Change(ctx, few))); err != nil {
		return err
	}
	next.Stop()
	return nil
}
