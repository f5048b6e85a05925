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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

// Conditions that status judges by, and waits for.
const (
	statusAccepted  = "accepted"
	statusConnected = "connected"
	statusReady     = "ready"
	statusRolledOut = "rolled-out"
)

// statusConditions are all of them, each with what it takes.
func statusConditions() map[string]string {
	return map[string]string{
		statusAccepted:  "every member is known to the others",
		statusConnected: "every member is connected to every other",
		statusReady:     "every member is connected, its nodes are programmed, and its DNS forwards the clusterset's names",
		statusRolledOut: "as ready, and every node has the agent that is installed",
	}
}

// status is a command line of status.
type status struct {
	*options
	clusters   []string
	clusterSet string
	output     string
	// condition to judge by; waits says that it is waited for.
	condition string
	waits     bool
}

func newStatus(o *options) *cobra.Command {
	s := &status{options: o}
	cmd := &cobra.Command{
		Use: "status", Short: "Say in few lines whether the network is ready, or wait until it is", Args: cobra.NoArgs,
		Long: `Say in few lines whether the network is ready: the controller, each ClusterSet, each member, and what each that
is not waits for. The exit code is 0 if all is as it should be, else 1.

With --wait it waits until it is, for at most --timeout, and says on the standard error what it still waits for: each
second in place on a terminal, elsewhere a line for each change. A Karmada API that does not answer meanwhile is asked
again. What waiting does not change, as a member that is refused, ends it at once.

  accepted     every member is known to the others
  connected    every member is connected to every other
  ready        as connected, and every node is programmed, and each member's DNS forwards the clusterset's names
  rolled-out   as ready, and every node has the agent that is installed

It goes by what the members report to the Karmada API, and asks none of them: diagnose and verify do.`,
		Example: `  ` + o.invocation + ` status
  ` + o.invocation + ` status --wait
  ` + o.invocation + ` status --wait=connected -C c1,c2 --timeout 2m`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.waits = cmd.Flags().Changed("wait")
			return s.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringSliceVarP(&s.clusters, "clusters", "C", nil, "members to judge (default: all)")
	f.StringVar(&s.clusterSet, "clusterset", "", "ClusterSet to judge (default: all)")
	f.StringVarP(&s.output, "output", "o", outputTable, "output format: table, wide, json or yaml")
	f.StringVar(&s.condition, "wait", statusReady, "wait for a condition: accepted, connected, ready or rolled-out")
	f.Lookup("wait").NoOptDefVal = statusReady
	return cmd
}

// standing is where a part of the network stands.
type standing struct {
	// Part is "controller", "ClusterSet" or "member", and Name which.
	Part string `json:"part"`
	Name string `json:"name"`
	// State is one of the constants below.
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
}

// States of a part.
const (
	stateOK      = "ok"
	stateWaiting = "waiting"
	stateRefused = "refused"
)

func (s standing) cells() []string { return []string{s.Part, s.Name, s.State, s.Message} }

func (s standing) String() string { return s.Part + " " + s.Name + ": " + s.Message }

func (s *status) run(ctx context.Context) error {
	what, known := statusConditions()[s.condition]
	if !known {
		return &finding{expected: "--wait to be accepted, connected, ready or rolled-out",
			found: fmt.Sprintf("%q", s.condition), remedy: "choose one of them, with = before it"}
	}
	if err := checkOutput(s.output); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	karmada, err := s.karmada()
	if err != nil {
		return err
	}
	if err := s.installed(ctx, karmada); err != nil {
		return err
	}
	stand, err := s.judge(ctx, karmada)
	if err == nil && s.waits {
		stand, err = s.wait(ctx, karmada, stand, newPending(s.ErrOut))
	}
	if err != nil {
		return err
	}
	if err := write(s.Out, s.output, newTable("status", stand, 4, "PART", "NAME", "STATE", "MESSAGE")); err != nil {
		return err
	}
	if left := open(stand); len(left) > 0 {
		within := ""
		if s.waits {
			within = " within " + s.timeout.String()
		}
		return &finding{expected: s.condition + within + ": " + what, found: describeStanding(left),
			remedy: "see " + s.invocation + " show problems, and " + s.invocation + " diagnose all"}
	}
	return nil
}

// judge reads the Karmada API and tells where all parts stand.
func (s *status) judge(ctx context.Context, karmada *api) ([]standing, error) {
	f, err := s.gather(ctx, karmada, subjects{}, scope{})
	if err != nil {
		return nil, err
	}
	return f.standings(s.condition, s.clusterSet, s.clusters), nil
}

// wait returns where all parts stand when each is decided, or when ctx ends. Before is where they stood.
func (s *status) wait(ctx context.Context, karmada *api, before []standing, p *pending) ([]standing, error) {
	defer p.clear()
	stand := before
	err := until(ctx, func(ctx context.Context) (bool, error) {
		now, err := s.judge(ctx, karmada)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil && refusal(err) == unreachable:
			p.show([]string{"the Karmada API does not answer: " + oneLine(err.Error())})
			return false, nil
		case err != nil:
			return false, err
		}
		stand = now
		var texts []string
		waiting := false
		for _, part := range open(stand) {
			texts = append(texts, part.String())
			waiting = waiting || part.State == stateWaiting
		}
		p.show(texts)
		return !waiting, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // what is left says why
	}
	return stand, err
}

// open are the parts that are not as they should be.
func open(all []standing) []standing {
	return slices.DeleteFunc(slices.Clone(all), func(s standing) bool { return s.State == stateOK })
}

func describeStanding(all []standing) string {
	const maxNamed = 20
	var lines []string
	for _, s := range all[:min(len(all), maxNamed)] {
		lines = append(lines, oneLine(s.String()))
	}
	if n := len(all) - maxNamed; n > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(lines, "\n")
}

// standings are those of the controller, of the ClusterSets and of their members, judged by a condition. A set and
// clusters narrow it; a cluster that is no member yet is one to wait for.
func (f *fleet) standings(condition, set string, clusters []string) []standing {
	out := []standing{{Part: "controller", Name: controllerName, State: stateOK}}
	if text := f.leaderless(); text != "" {
		out[0].State, out[0].Message = stateWaiting, text
	}
	found := false
	for i := range f.clusterSets {
		cs := &f.clusterSets[i]
		if set != "" && cs.Name != set {
			continue
		}
		found = true
		if len(clusters) == 0 {
			out = append(out, f.clusterSetStands(cs, condition))
		}
	}
	if !found {
		out = append(out, standing{"ClusterSet", set, stateWaiting, "there is none"})
	}
	seen := map[string]bool{}
	for i := range f.members {
		m := &f.members[i].Member
		if set != "" && m.Spec.ClusterSet != set || len(clusters) > 0 && !slices.Contains(clusters, m.Name) {
			continue
		}
		seen[m.Name] = true
		out = append(out, memberStands(m, condition))
	}
	for _, name := range clusters {
		if !seen[name] {
			out = append(out, standing{"member", name, stateWaiting, "waiting for the controller to take it in"})
		}
	}
	return out
}

// clusterSetStands judges what its members do not say.
func (f *fleet) clusterSetStands(cs *v1alpha1.ClusterSet, condition string) standing {
	s := standing{Part: "ClusterSet", Name: cs.Name, State: stateWaiting}
	members := 0
	for i := range f.members {
		if f.members[i].Spec.ClusterSet == cs.Name {
			members++
		}
	}
	rolled := meta.FindStatusCondition(cs.Status.Conditions, v1alpha1.ClusterSetRolledOut)
	switch {
	case cs.Status.ObservedGeneration < cs.Generation:
		s.Message = "waiting for the controller to see its last change"
	case members < int(cs.Status.Members):
		s.Message = fmt.Sprintf("waiting for %d of %d members to be taken in", int(cs.Status.Members)-members,
			cs.Status.Members)
	case members == 0:
		s.Message = "has no members"
	case condition != statusAccepted && cs.Status.ConnectedPairs < cs.Status.Pairs:
		s.Message = fmt.Sprintf("%d of %d pairs of members are connected", cs.Status.ConnectedPairs, cs.Status.Pairs)
	case condition == statusRolledOut && rolled != nil && rolled.Status != metav1.ConditionTrue:
		s.Message = clip.Text(rolled.Message, 400)
	default:
		s.State = stateOK
		s.Message = fmt.Sprintf("%d members, %d of %d pairs are connected", members, cs.Status.ConnectedPairs,
			cs.Status.Pairs)
		if n := cs.Status.UnencryptedPairs; n > 0 {
			s.Message += fmt.Sprintf(", %d to be reached NOT ENCRYPTED, by vxlan", n)
		}
	}
	return s
}

func memberStands(m *v1alpha1.Member, condition string) standing {
	last := v1alpha1.PeeringDNSConfigured
	switch condition {
	case statusAccepted:
		last = v1alpha1.MemberAccepted
	case statusConnected:
		last = v1alpha1.MemberConnected
	}
	r := memberReaches(m, last)
	s := standing{Part: "member", Name: m.Name, State: stateWaiting, Message: r.text}
	roll := m.Status.RollOut
	switch {
	case r.refused:
		s.State = stateRefused
	case r.ready && condition == statusRolledOut && roll != nil && roll.State != v1alpha1.RollOutDone:
		s.Message = "new node agents: " + roll.Message
	case r.ready:
		s.State = stateOK
	}
	return s
}

// pending says what a wait still waits for.
type pending struct {
	*progress
	// width returns the columns of the terminal; nil where there is none.
	width func() int
	drawn time.Time
}

// show says it: on a terminal in one line, drawn anew each second, elsewhere in lines, each once.
func (p *pending) show(texts []string) {
	if p.width == nil {
		for _, text := range texts {
			subject, rest, _ := strings.Cut(text, ": ")
			p.state(subject, rest)
		}
		return
	}
	if len(texts) == 0 || time.Since(p.drawn) < time.Second {
		return
	}
	p.drawn = time.Now()
	line := fmt.Sprintf("[%4.0fs] waiting for %d: %s", time.Since(p.start).Seconds(), len(texts),
		oneLine(strings.Join(texts, "; ")))
	fmt.Fprintf(p.out, "\r%s\x1b[K", cut(line, p.width()-1))
}

// clear takes the line away.
func (p *pending) clear() {
	if p.width != nil && !p.drawn.IsZero() {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
