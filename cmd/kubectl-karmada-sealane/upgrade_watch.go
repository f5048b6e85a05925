// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// unchangedAfter is how long Karmada may take to bring a member that it reaches its new node agents. Those that are
	// the same after that were kept by somebody, as by an OverridePolicy.
	unchangedAfter = 2 * time.Minute
	// upgradePatience is for how long nothing may move: longer than the controller bears with one member.
	upgradePatience = 15 * time.Minute
)

// rolling is a roll-out that is watched: how the members were before.
type rolling struct {
	began time.Time
	// changes says that the node agents become others.
	changes bool
	before  map[string]memberBefore
}

// memberBefore is a member as a roll-out finds it.
type memberBefore struct {
	// revision of its newest node agents; empty of one that does not tell.
	revision string
	// ready is whether it was: of one that was not, it cannot be expected after.
	ready bool
}

// rolling changes the templates, and returns what is to be watched then.
func (u *upgrade) rolling(ctx context.Context, d *deployed, change func() error) (*rolling, error) {
	f, err := u.gather(ctx, d.karmada, subjects{}, scope{})
	if err != nil {
		return nil, err
	}
	r := &rolling{began: time.Now(), before: map[string]memberBefore{}}
	for i := range f.members {
		m := &f.members[i].Member
		b := memberBefore{ready: memberReadiness(m).ready}
		if m.Status.RollOut != nil {
			b.revision = m.Status.RollOut.Report.Revision
		}
		r.before[m.Name] = b
	}
	generation := func() (int64, error) {
		var agents appsv1.DaemonSet
		_, err := d.karmada.find(ctx, client.ObjectKey{Namespace: v1alpha1.Namespace, Name: nodeAgentName}, &agents)
		return agents.Generation, err
	}
	was, err := generation()
	if err != nil {
		return nil, err
	}
	if err := change(); err != nil {
		return nil, err
	}
	is, err := generation()
	r.changes = is != was
	return r, err
}

// watch waits until every member has come back, and fails at the first that does not. A Karmada API that does not
// answer meanwhile is asked again.
func (u *upgrade) watch(ctx context.Context, karmada *api, r *rolling, p *progress) error {
	var last []readiness
	said, moved := "", time.Now()
	err := until(ctx, func(ctx context.Context) (bool, error) {
		f, err := u.gather(ctx, karmada, subjects{}, scope{})
		reached := map[string]bool{}
		if err == nil {
			reached, err = u.reached(ctx, karmada)
		}
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil && refusal(err) == unreachable:
			p.state("Karmada API", "does not answer: "+oneLine(err.Error()))
			return false, nil
		case err != nil:
			return false, err
		}
		p.state("Karmada API", "answers")
		last = r.stand(f, reached)
		done := decided(last, p)
		now := fmt.Sprint(last)
		if now != said {
			said, moved = now, time.Now()
		}
		if r.stopped(last) != "" || time.Since(moved) > upgradePatience {
			return true, nil
		}
		return done && f.leaderless() == "", nil
	})
	if err == nil && allReady(last) {
		return nil
	}
	found := describeReadiness(last)
	if err != nil {
		found += "\n" + err.Error()
	}
	where := "every member to come back with its new agents"
	if name := r.stopped(last); name != "" {
		where += ", and the roll-out has stopped at " + name
	}
	return &finding{expected: where, found: found,
		remedy: fmt.Sprintf("see %s show rollout and show problems. Repair what they name and run this again; or go back: "+
			"%s upgrade --rollback", u.invocation, u.invocation)}
}

// reached are the clusters that Karmada reaches.
func (u *upgrade) reached(ctx context.Context, karmada *api) (map[string]bool, error) {
	var list clusterv1alpha1.ClusterList
	if err := karmada.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list clusters: %w", err)
	}
	out := map[string]bool{}
	for i := range list.Items {
		out[list.Items[i].Name] = clusterReady(&list.Items[i])
	}
	return out, nil
}

// stopped names the member that does not come back; "" if there is none.
func (r *rolling) stopped(states []readiness) string {
	for _, s := range states {
		if s.refused {
			return s.name
		}
	}
	return ""
}

// stand says where the members stand; reached are those that Karmada reaches.
func (r *rolling) stand(f *fleet, reached map[string]bool) []readiness {
	var out []readiness
	for i := range f.members {
		m := &f.members[i].Member
		s := r.member(m, reached[m.Name], f.now)
		s.name = m.Name
		out = append(out, s)
	}
	return out
}

func (r *rolling) member(m *v1alpha1.Member, reached bool, now time.Time) readiness {
	before, known := r.before[m.Name]
	roll := m.Status.RollOut
	revision := ""
	if roll != nil {
		revision = roll.Report.Revision
	}
	// One that says nothing of before has told what it has by now.
	moved := !r.changes || !known || revision != before.revision
	switch {
	case m.Spec.Phase == v1alpha1.MemberLeaving:
		return readiness{ready: true, text: "is leaving"}
	case !before.ready && !reached:
		return readiness{ready: true, text: "was not ready before, and Karmada does not reach it: its agents follow later"}
	case !moved && reached && now.Sub(r.began) > unchangedAfter:
		return readiness{ready: true, text: "keeps its node agents: an OverridePolicy may state them, or they are as before"}
	case !moved:
		return readiness{text: "waiting for Karmada to bring it the agents"}
	case roll != nil && roll.State == v1alpha1.RollOutStopped:
		return readiness{refused: true, text: "stopped: " + roll.Message}
	case roll != nil && roll.State != v1alpha1.RollOutDone:
		return readiness{text: strings.ToLower(string(roll.State)) + ": " + roll.Message}
	}
	stands := memberReadiness(m)
	if !stands.ready && !before.ready && known {
		return readiness{ready: true, text: "has its agents, and is not ready, as before: " + stands.text}
	}
	return readiness{ready: stands.ready, text: "has its agents, " + cmp.Or(stands.text, "ready")}
}
