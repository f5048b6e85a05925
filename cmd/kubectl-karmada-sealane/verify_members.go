// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// membersToTry are those that were asked for, or all of the ClusterSet; there must be two.
func (o *options) membersToTry(ctx context.Context, karmada *api, clusters []string) (
	*v1alpha1.ClusterSet, []v1alpha1.Member, error,
) {
	all, err := karmada.members(ctx)
	if err != nil {
		return nil, nil, err
	}
	known := fleet{all: make([]string, len(all)), members: make([]fleetMember, len(all))}
	name := defaultClusterSet
	for i := range all {
		known.all[i], known.members[i].Member = all[i].Name, all[i]
		if len(clusters) > 0 && all[i].Name == clusters[0] {
			name = all[i].Spec.ClusterSet
		}
	}
	if err := known.known(clusters, o.invocation); err != nil {
		return nil, nil, err
	}
	var members []v1alpha1.Member
	for i := range all {
		inSet := all[i].Spec.ClusterSet == name && all[i].Spec.Phase != v1alpha1.MemberLeaving
		switch wanted := slices.Contains(clusters, all[i].Name); {
		case wanted && !inSet:
			return nil, nil, &finding{
				expected: "members of one ClusterSet that stay in it",
				found: fmt.Sprintf("%s of ClusterSet %s is %s, and %s is of %s", all[i].Name, all[i].Spec.ClusterSet,
					all[i].Spec.Phase, clusters[0], name),
				remedy: "name members of one ClusterSet",
			}
		case inSet && (wanted || len(clusters) == 0):
			members = append(members, all[i])
		}
	}
	if len(members) < 2 {
		return nil, nil, &finding{
			expected: "two members or more, for there to be a way between them",
			found:    fmt.Sprintf("%d in ClusterSet %s", len(members), name),
			remedy:   "name two with -C, or make another cluster a member: " + o.invocation + " join CLUSTER",
		}
	}
	var set v1alpha1.ClusterSet
	if err := karmada.Get(ctx, client.ObjectKey{Name: name}, &set); err != nil {
		return nil, nil, fmt.Errorf("get ClusterSet %s: %w", name, err)
	}
	return &set, members, nil
}

// sites opens and surveys all members, in parallel.
func (o *options) sites(ctx context.Context, karmada *api, members []v1alpha1.Member, timeout time.Duration) (
	[]*site, error,
) {
	sites, errs := make([]*site, len(members)), make([]error, len(members))
	var g errgroup.Group
	for i := range members {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, 2*timeout)
			defer cancel()
			sites[i] = &site{name: members[i].Name, member: &members[i]}
			c, err := o.member(ctx, karmada, &members[i])
			if err == nil {
				sites[i].api = c
				err = sites[i].survey(ctx)
			}
			errs[i] = err
			return nil
		})
	}
	_ = g.Wait()
	for i, err := range errs {
		if found := (*finding)(nil); errors.As(err, &found) {
			return nil, found
		}
		if err != nil {
			return nil, &finding{
				expected: fmt.Sprintf("to reach the API server of %s from here, to start pods there", members[i].Name),
				found:    refusal(err) + ": " + err.Error(),
				remedy: fmt.Sprintf("add a kubeconfig context named %s, as a pull member needs, or see that Karmada's "+
					"cluster proxy works; or leave it out with -C", members[i].Name),
			}
		}
	}
	if err := sweep(ctx, sites); err != nil {
		return nil, err
	}
	return sites, nil
}

// sweep removes what runs that were killed have left.
func sweep(ctx context.Context, sites []*site) error {
	var g errgroup.Group
	for _, s := range sites {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, cleanPatience)
			defer cancel()
			return s.api.removeTrials(ctx, time.Now())
		})
	}
	return g.Wait()
}

// try makes a trial in the members, with servers, and removes it again however f ends.
func (o *options) try(ctx context.Context, p *progress, sites []*site, set *v1alpha1.ClusterSet,
	f func(context.Context, *trial) error,
) (err error) {
	t := &trial{namespace: namePrefix + utilrand.String(8), token: rand.Text(), until: time.Now().Add(lifetime),
		set: set, sites: sites}
	for _, s := range sites {
		t.clusters = append(t.clusters, s.name)
	}
	defer func() {
		switch ctx.Err() {
		case context.Canceled:
			err = errors.New("interrupted")
		case context.DeadlineExceeded:
			err = fmt.Errorf("not done within %s: give it more with --timeout", o.timeout)
		}
		// Also after Ctrl-C, and when the time is over.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanPatience)
		defer cancel()
		if left := t.remove(clean); left != nil {
			err = errors.Join(err, left)
			return
		}
		p.say("namespace %s removed", t.namespace)
	}()
	p.say("namespace %s, in %s", t.namespace, list(t.clusters))
	if err := t.each(ctx, t.createServers); err != nil {
		return err
	}
	if err := t.each(ctx, t.awaitServers); err != nil {
		return err
	}
	p.say("%d of %d servers run", t.serversRunning(), len(t.servers()))
	if err := t.each(ctx, t.awaitImports); err != nil {
		return err
	}
	return f(ctx, t)
}
