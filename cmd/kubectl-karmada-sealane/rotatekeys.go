// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

type rotateKeys struct {
	*options
	clusters   []string
	clusterSet string
	wait       bool
}

func newRotateKeys(o *options) *cobra.Command {
	r := &rotateKeys{options: o}
	cmd := &cobra.Command{
		Use:   "rotate-keys " + clusterArguments,
		Short: "Have gateways replace their private keys, without loss of packets",
		Long: `Have the gateways of members, of all members by default, replace the private keys of their cables, and wait
until every other cluster uses the new ones. Both keys of a gateway work until all gateways of other clusters
that it is connected to have moved; traffic goes on meanwhile, and the command may be interrupted. The former
key is refused at the end. Of a member whose gateways already replace theirs nothing more is asked: the command
says since when and how far they are, and waits for them, or fails with --wait=false.

While a key is replaced, gateways use the UDP ports that are 16 higher than usual besides: 4516 for 4500.`,
		Example: "  " + o.invocation + " rotate-keys c1",
		RunE: func(cmd *cobra.Command, args []string) error {
			r.clusters = append(r.clusters, args...)
			return r.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringSliceVarP(&r.clusters, "clusters", "C", nil, "members, besides those given as arguments (default: all)")
	f.StringVar(&r.clusterSet, "clusterset", defaultClusterSet, "name of the ClusterSet")
	f.BoolVar(&r.wait, "wait", true, "wait until the new keys are in use")
	return cmd
}

func (r *rotateKeys) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	p := newProgress(r.ErrOut)
	karmada, err := r.karmada()
	if err != nil {
		return err
	}
	if err := r.installed(ctx, karmada); err != nil {
		return err
	}
	var set v1alpha1.ClusterSet
	if err := karmada.Get(ctx, client.ObjectKey{Name: r.clusterSet}, &set); err != nil {
		return karmada.explainClusterSet(ctx, r.clusterSet, err)
	}
	members, err := karmada.members(ctx)
	if err != nil {
		return err
	}
	names, err := r.chosen(members)
	if err != nil {
		return err
	}
	f, err := r.gather(ctx, karmada, subjects{gateways: true}, scope{clusters: names, memberTimeout: defaultMemberTimeout})
	if err != nil {
		return err
	}
	asked, busy := map[string]time.Time{}, []string{}
	for _, name := range names {
		if m := f.member(name); m != nil {
			if going := underWay(f, m); going != "" {
				p.warn("%s: not asked anew: %s", name, going)
				asked[name] = lastAsked(m)
				busy = append(busy, name+": "+going)
				continue
			}
		}
		at, err := karmada.askForKeys(ctx, name, time.Now())
		if err != nil {
			return err
		}
		asked[name] = at
		p.state(name, "asked for new keys")
	}
	if !r.wait && len(busy) > 0 {
		return &finding{
			expected: "gateways that do not replace their keys already",
			found:    strings.Join(busy, "\n"),
			remedy:   "wait for them: the command without --wait=false does; then ask again, if their keys are to be newer yet",
		}
	}
	if !r.wait {
		return nil
	}
	return r.waitRotated(ctx, karmada, p, asked)
}

// chosen are the members to ask: those that were named, or all that belong to the ClusterSet and do not leave.
func (r *rotateKeys) chosen(members []v1alpha1.Member) ([]string, error) {
	var all []string
	for i := range members {
		if members[i].Spec.ClusterSet == r.clusterSet && members[i].Spec.Phase != v1alpha1.MemberLeaving {
			all = append(all, members[i].Name)
		}
	}
	for _, name := range r.clusters {
		if !slices.Contains(all, name) {
			return nil, &finding{
				expected: fmt.Sprintf("%q to be a member of ClusterSet %s", name, r.clusterSet),
				found:    "members: [" + strings.Join(all, ", ") + "]",
				remedy:   didYouMean(name, all) + "name members of the ClusterSet, or another one with --clusterset",
			}
		}
	}
	if len(r.clusters) > 0 {
		return slices.Compact(slices.Sorted(slices.Values(r.clusters))), nil
	}
	if len(all) == 0 {
		return nil, &finding{expected: "members in ClusterSet " + r.clusterSet, found: "none",
			remedy: "make clusters members: " + r.invocation + " join CLUSTER"}
	}
	return all, nil
}

// lastAsked is from when the keys are to be that a member was last asked for; zero if it never was.
func lastAsked(m *fleetMember) time.Time {
	at, err := time.Parse(time.RFC3339, m.Annotations[v1alpha1.AnnotationRotateKeys])
	if err != nil {
		return time.Time{}
	}
	return at
}

// underWay says since when gateways of a member replace their keys, and how far each is that is not done; "" if none
// does, or if that is not known.
func underWay(f *fleet, m *fleetMember) string {
	if m.err != nil {
		return ""
	}
	since, going := lastAsked(m), map[string]bool{}
	for i := range m.gateways {
		k := m.gateways[i].Status.Keys
		if k == nil || k.Phase == v1alpha1.KeyCurrent && !k.MadeAt.Time.Before(lastAsked(m)) {
			continue
		}
		going[m.Name+"/"+m.gateways[i].Name] = true
		if k.Since != nil && (since.IsZero() || k.Since.Time.Before(since)) {
			since = k.Since.Time
		}
	}
	if len(going) == 0 {
		return ""
	}
	text := "its gateways replace their keys already"
	if !since.IsZero() {
		text += ", since " + since.UTC().Format(time.RFC3339)
	}
	var states []string
	for _, s := range rotationOf(f, m, lastAsked(m)) {
		if going[s.subject] {
			states = append(states, s.subject+": "+s.text)
		}
	}
	return text + "; " + strings.Join(states, "; ")
}

// askForKeys asks a member's gateways for keys that are made from now on, and returns from when: later than what was
// asked for before, so that each request counts.
func (a *api) askForKeys(ctx context.Context, member string, now time.Time) (time.Time, error) {
	var at time.Time
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var m v1alpha1.Member
		if err := a.Get(ctx, client.ObjectKey{Name: member}, &m); err != nil {
			return fmt.Errorf("get Member %s: %w", member, err)
		}
		at = now.UTC().Truncate(time.Second).Add(time.Second)
		last, err := time.Parse(time.RFC3339, m.Annotations[v1alpha1.AnnotationRotateKeys])
		if err == nil && !at.After(last) && last.Sub(now) < time.Minute {
			at = last.UTC().Add(time.Second)
		}
		if m.Annotations == nil {
			m.Annotations = map[string]string{}
		}
		m.Annotations[v1alpha1.AnnotationRotateKeys] = at.Format(time.RFC3339)
		return a.Update(ctx, &m, client.FieldOwner(fieldManager))
	})
	return at, err
}

// waitRotated waits until each gateway of the members has a key that was made since it was asked for, and no other.
func (r *rotateKeys) waitRotated(ctx context.Context, karmada *api, p *progress, asked map[string]time.Time) error {
	var clusters []string
	for name := range asked {
		clusters = append(clusters, name)
	}
	slices.Sort(clusters)
	var missing []string
	err := until(ctx, func(ctx context.Context) (bool, error) {
		f, err := r.gather(ctx, karmada, subjects{gateways: true}, scope{clusters: clusters,
			memberTimeout: defaultMemberTimeout})
		if err != nil {
			return false, err
		}
		missing = missing[:0]
		for i := range f.members {
			for _, s := range rotationOf(f, &f.members[i], asked[f.members[i].Name]) {
				p.state(s.subject, s.text)
				if !s.done {
					missing = append(missing, s.subject+": "+s.text)
				}
			}
		}
		return len(missing) == 0, nil
	})
	switch {
	case err == nil:
		p.say("every gateway has its new key, and no other cluster uses a former one")
		return nil
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return &finding{
		expected: fmt.Sprintf("every gateway to have a new key within %s", r.timeout),
		found:    strings.Join(missing, "\n"),
		remedy: "nothing is lost: the gateways go on by themselves, and both keys work meanwhile; see " + r.invocation +
			" show gateways. A gateway that has not moved is told of the key through Karmada, and needs the UDP ports that " +
			"are 16 higher than the cables' usual ones at one of the two ends",
	}
}

// rotationState is how far one gateway is, or a member whose gateways are not known.
type rotationState struct {
	subject, text string
	done          bool
}

// rotationOf says how far the gateways of a member are with keys that were asked for.
func rotationOf(f *fleet, m *fleetMember, asked time.Time) []rotationState {
	if m.err != nil {
		return []rotationState{{subject: m.Name, text: "not known: " + m.unavailable()}}
	}
	if len(m.gateways) == 0 {
		return []rotationState{{subject: m.Name, text: "has no gateway", done: true}}
	}
	var out []rotationState
	for i := range m.gateways {
		g := &m.gateways[i]
		s := rotationState{subject: m.Name + "/" + g.Name}
		k := g.Status.Keys
		why := stale(f, g)
		switch {
		case k == nil && why == "":
			s.text = "its node agent does not replace keys: upgrade it"
		case why != "":
			s.text = "begins or goes on when it is back: " + why
		case k.Phase == v1alpha1.KeyCurrent && k.MadeAt.Time.Before(asked):
			s.text = "has not heard of the request"
		case k.Phase == v1alpha1.KeyCurrent:
			s.text, s.done = "has its new key", true
		default:
			s.text = string(k.Phase)
			if c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.GatewayKeyCurrent); c != nil {
				s.text += ": " + c.Message
			}
		}
		out = append(out, s)
	}
	return out
}
