// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/ui"
)

const (
	// askAgain is after what time a member that did not answer is asked again: until then it delays nobody.
	askAgain = 15 * time.Second
	// snapshotLife is how old the snapshot may be that a packet is followed through.
	snapshotLife = 10 * time.Second
)

// liveMap reads the network again and again. It keeps the API servers that it has opened, as each new client first asks
// for all kinds.
type liveMap struct {
	*diagnoses
	// reading is held by one reader at a time.
	reading sync.Mutex
	karmada *api
	at      map[string]*api
	silent  map[string]silentMember
	last    *snapshot
}

// silentMember could not be asked, and is asked again later.
type silentMember struct {
	why   string
	again time.Time
}

func newLiveMap(d *diagnoses) *liveMap {
	return &liveMap{diagnoses: d, at: map[string]*api{}, silent: map[string]silentMember{}}
}

// Read implements ui.Source.
func (l *liveMap) Read(ctx context.Context) (ui.Map, error) {
	l.reading.Lock()
	defer l.reading.Unlock()
	s, err := l.snapshot(ctx)
	if err != nil {
		return ui.Map{}, err
	}
	return s.picture(), nil
}

// Explain implements ui.Source.
func (l *liveMap) Explain(ctx context.Context, from, to string) (*ui.Explanation, error) {
	source, destination, err := ends(from, to)
	if err != nil {
		return nil, err
	}
	l.reading.Lock()
	s := l.last
	if s == nil || l.from == "" && time.Since(s.taken) > snapshotLife {
		s, err = l.snapshot(ctx)
	}
	l.reading.Unlock()
	if err != nil {
		return nil, err
	}
	e, err := s.explain(ctx, source, destination)
	if err != nil {
		return nil, err
	}
	out := &ui.Explanation{From: e.From, To: e.To, Arrives: string(e.Arrives)}
	for _, step := range e.Steps {
		out.Steps = append(out.Steps, ui.Step{At: step.At, Name: step.Name, Verdict: string(step.Verdict), Found: step.Found,
			Expected: step.Expected, Remedy: step.Remedy})
	}
	return out, nil
}

// snapshot reads anew what diagnose judges, or once a file. l.reading is held.
func (l *liveMap) snapshot(ctx context.Context) (*snapshot, error) {
	if l.from != "" {
		if l.last != nil {
			return l.last, nil
		}
	} else if err := l.open(ctx); err != nil {
		return nil, err
	}
	var s *snapshot
	var err error
	if l.from != "" {
		s, err = l.take(ctx)
	} else {
		l.recheck(ctx)
		within := l.scope
		within.at, within.silent = l.at, map[string]string{}
		for name, m := range l.silent {
			within.silent[name] = m.why
		}
		s, err = l.options.snapshot(ctx, l.karmada, &l.host, within)
	}
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil { // what is missing was not asked for, rather than not answered
		return nil, fmt.Errorf("read the network: %w", err)
	}
	if why := s.karmada.lacks("Member"); why != "" { // nothing is not the same as not known
		return nil, fmt.Errorf("list the members: %s", why)
	}
	if err := s.fleet().known(l.clusters, l.invocation); err != nil {
		return nil, err
	}
	l.remember(s)
	return s, nil
}

// open opens the Karmada API once.
func (l *liveMap) open(ctx context.Context) error {
	if l.karmada != nil {
		return nil
	}
	karmada, err := l.diagnoses.karmada()
	if err != nil {
		return err
	}
	if err := l.installed(ctx, karmada); err != nil {
		return err
	}
	l.karmada = karmada
	return nil
}

// recheck sees that each API server that is open still answers, and is still that of the member.
func (l *liveMap) recheck(ctx context.Context) {
	for name, m := range l.silent {
		if time.Now().After(m.again) {
			delete(l.silent, name)
		}
	}
	if l.last == nil {
		return
	}
	members := of[*v1alpha1.Member](&l.last.karmada)
	failures := make([]error, len(members))
	var g errgroup.Group
	for i, m := range members {
		if a := l.at[m.Name]; a != nil {
			g.Go(func() error {
				asked, cancel := context.WithTimeout(ctx, l.memberTimeout)
				defer cancel()
				failures[i] = a.identify(asked, m)
				return nil
			})
		}
	}
	_ = g.Wait() // what failed is in failures
	if ctx.Err() != nil {
		return
	}
	for i, m := range members {
		if err := failures[i]; err != nil {
			delete(l.at, m.Name)
			l.silent[m.Name] = silentMember{refusal(err) + ": " + err.Error(), time.Now().Add(askAgain)}
		}
	}
}

// remember keeps which API servers answered, and which did not.
func (l *liveMap) remember(s *snapshot) {
	l.last, l.at = s, map[string]*api{}
	for i := range s.members {
		p := &s.members[i]
		if p.api != nil {
			l.at[p.name] = p.api
			continue
		}
		if _, known := l.silent[p.name]; !known {
			l.silent[p.name] = silentMember{p.lacks(everything), time.Now().Add(askAgain)}
		}
	}
}

var _ ui.Source = (*liveMap)(nil)
