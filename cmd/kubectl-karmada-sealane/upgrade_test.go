// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/rollout"
	"github.com/sealane-io/sealane/internal/version"
)

// fleetPlayer plays Karmada, the members and the controller, which decides by what the real one decides by. Its clock
// goes ten seconds each round.
type fleetPlayer struct {
	k       *karmada
	now     time.Time
	records map[string]*v1alpha1.MemberRollOut
	// nodes of members, each with the image of its agent.
	nodes map[string][]string
}

const (
	// brokenImage is of agents that fail where they take a node over, and missingImage one that no host has.
	brokenImage  = "localhost/agent:broken"
	missingImage = "localhost/controller:missing"
)

// plays runs a fleetPlayer until the test ends, of members with two nodes each, which are new.
func (k *karmada) plays(t *testing.T, names ...string) {
	t.Helper()
	p := &fleetPlayer{k: k, now: time.Now(), records: map[string]*v1alpha1.MemberRollOut{}, nodes: map[string][]string{}}
	for _, name := range names {
		p.nodes[name] = []string{"", ""}
	}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		_ = until(ctx, func(ctx context.Context) (bool, error) {
			p.deploys(ctx)
			p.rolls(ctx)
			return false, nil
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// deploys has the controller's pods run as soon as they are wanted.
func (p *fleetPlayer) deploys(ctx context.Context) {
	d := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: controllerName, Name: controllerName}
	if p.k.Get(ctx, key, d) != nil || imageIn(d.Spec.Template.Spec) == missingImage {
		return
	}
	n := ptr.Deref(d.Spec.Replicas, 1)
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n,
		ReadyReplicas: n, AvailableReplicas: n}
	_ = p.k.Status().Update(ctx, d)
}

// rolls brings members the agents of the template, as far as they are released.
func (p *fleetPlayer) rolls(ctx context.Context) {
	var agents appsv1.DaemonSet
	if p.k.Get(ctx, client.ObjectKey{Namespace: v1alpha1.Namespace, Name: nodeAgentName}, &agents) != nil {
		return
	}
	p.now = p.now.Add(10 * time.Second)
	in := rollout.Input{Now: p.now}
	image := imageIn(agents.Spec.Template.Spec)
	for name, nodes := range p.nodes {
		m := rollout.Member{Name: name, Record: p.records[name]}
		if slices.Contains(nodes, brokenImage) && image == brokenImage {
			m.Trouble = "agents fail: read-only file system"
		}
		released := m.Record != nil && m.Record.Released == image && m.Trouble == ""
		if i := slices.IndexFunc(nodes, func(has string) bool { return has == "" || has != image && released }); i >= 0 {
			nodes[i] = image
		}
		m.Report = &v1alpha1.RollOutReport{Revision: image, Nodes: int32(len(nodes))}
		for _, has := range nodes {
			switch has {
			case image:
				m.Report.Updated++
			case "":
			default:
				m.Report.Outdated++
			}
		}
		in.Members = append(in.Members, m)
	}
	p.records = rollout.Decide(in).Records
	for name := range p.nodes {
		var member v1alpha1.Member
		if p.k.Get(ctx, client.ObjectKey{Name: name}, &member) == nil {
			member.Status.RollOut = p.records[name]
			_ = p.k.Status().Update(ctx, &member)
		}
	}
}

// images of the controller and of the agents, as they are installed.
func (k *karmada) images(t *testing.T) string {
	t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: controllerName, Name: controllerName}}
	agents := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: nodeAgentName}}
	k.get(t, d)
	k.get(t, agents)
	return imageTag(imageIn(d.Spec.Template.Spec)) + " " + imageTag(imageIn(agents.Spec.Template.Spec))
}

// TestUpgradeGoesMemberByMemberAndBack: forward, against a version that fails at the canary, back, and repaired by a
// third version.
func TestUpgradeGoesMemberByMemberAndBack(t *testing.T) {
	k := newKarmada(t)
	k.plays(t) // the host
	on := "--host-context=lost-member"
	k.succeeds(t, "install", on, "--wait=false", "--karmada-server=https://karmada.example:5443",
		"--controller-image=localhost/controller:v1", "--agent-image=localhost/agent:v1", "--dns-image=localhost/dns:v1",
		"--controller-replicas=3")
	k.report(t, []string{"c1", "c2"}, connected()...)
	k.plays(t, "c1", "c2")
	is := func(want string) {
		t.Helper()
		if got := k.images(t); got != want {
			t.Errorf("controller and agents are of %s, want %s", got, want)
		}
	}
	to := func(controller, agents string) []string {
		return []string{"upgrade", on, "--controller-image=localhost/controller:" + controller,
			"--agent-image=localhost/agent:" + agents, "--dns-image=localhost/dns:v1"}
	}
	k.fails(t, []string{"nothing was kept"}, "upgrade", on, "--rollback")

	out := k.succeeds(t, append(to("v2", "v2"), "--check")...)
	for _, want := range []string{"localhost/agent:v1 ", "localhost/agent:v2 ", "CRDs", "current", "cluster agent"} {
		if !strings.Contains(out, want) {
			t.Errorf("--check does not say %q", want)
		}
	}
	is("v1 v1")
	out = k.succeeds(t, to("v2", "v2")...)
	is("v2 v2")
	if first, second := strings.Index(out, "c1: has its agents"), strings.Index(out, "c2: has its agents"); first < 0 ||
		second < first || strings.Index(out, "controller: ") > first {
		t.Error("the order is not the controller, c1, c2")
	}

	broken := to("v3", "broken")
	k.fails(t, []string{"stopped at c1", "read-only file system", "upgrade --rollback", "c2: waiting"}, broken...)
	is("v3 broken")
	k.succeeds(t, "upgrade", on, "--rollback")
	is("v2 v2")
	k.fails(t, []string{"nothing was kept"}, "upgrade", on, "--rollback")

	k.fails(t, []string{"stopped at c1"}, broken...)
	if out := k.succeeds(t, to("v4", "v4")...); !strings.Contains(out, "localhost/agent:v2 of ") {
		t.Error("a repair does not say what is kept")
	}
	is("v4 v4")
	k.succeeds(t, "upgrade", on, "--rollback")
	is("v2 v2")

	// Members keep what they have while the controller does not come.
	k.fails(t, []string{"the controller to become available"},
		append(to("missing", "v5"), "--timeout=20s")...)
	is("missing v2")
	k.succeeds(t, "upgrade", on, "--rollback")
	is("v2 v2")
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: controllerName, Name: controllerName}}
	if k.get(t, d); *d.Spec.Replicas != 3 || d.Spec.Template.Annotations[annotationKubeconfig] == "" {
		t.Errorf("the controller has %d replicas, annotations %v", *d.Spec.Replicas, d.Spec.Template.Annotations)
	}
}

// TestUpgradeRefusesToGoBack where it could lose objects, or what is installed is newer.
func TestUpgradeRefusesToGoBack(t *testing.T) {
	k := newKarmada(t)
	k.install(t)
	k.report(t, []string{"c1"}, connected()...)
	m := &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	k.get(t, m)
	m.Status.AgentVersion = "v99.0.0"
	if err := k.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	k.fails(t, []string{"the cluster agent of c1 is", "v99.0.0"}, "upgrade", "--controller=external")
	k.fails(t, []string{"v99.0.0"}, "upgrade", "--controller=external", "--check")
	k.fails(t, []string{"there is none", "--controller=external"}, "upgrade", "--host-context=lost-member")
	k.fails(t, []string{"check rollback"}, "upgrade", "--check", "--rollback")

	own, err := crds()
	if err != nil {
		t.Fatal(err)
	}
	if lost, err := k.lostVersions(t.Context(), own); err != nil || len(lost) > 0 {
		t.Errorf("lost %v, %v: want none", lost, err)
	}
	for _, o := range own {
		versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
		versions[0].(map[string]any)["name"] = "v9"
		if err := unstructured.SetNestedSlice(o.Object, versions, "spec", "versions"); err != nil {
			t.Fatal(err)
		}
	}
	if lost, err := k.lostVersions(t.Context(), own); err != nil || len(lost) != len(own) ||
		!strings.HasSuffix(lost[0], " v1alpha1") {
		t.Errorf("lost %v, %v: want one version of each CRD", lost, err)
	}
}

func TestWhatComesBackFromARollOut(t *testing.T) {
	const unready = true
	began, ready := time.Unix(1000, 0), connected()
	for _, c := range []struct {
		name string
		// before and now are "revision state"; empty of a member that does not tell.
		before, now string
		// wasUnready and isUnready are whether it was connected, lost whether Karmada does not reach it.
		wasUnready, isUnready, lost bool
		after                       time.Duration
		want                        string
	}{
		{name: "nothing yet", before: "old", now: "old Done", want: "wait: waiting for Karmada"},
		{name: "nothing yet, of old agents", want: "wait: waiting for Karmada"},
		{name: "nothing for long", before: "old", now: "old Done", after: time.Hour, want: "ready: keeps"},
		{name: "nothing for long, of one that is away", before: "old", now: "old Done", after: time.Hour, lost: true,
			want: "wait: waiting for Karmada"},
		{name: "a stop of before", before: "old", now: "old Stopped", want: "wait: waiting for Karmada"},
		{name: "waits for its turn", before: "old", now: "new Waiting", want: "wait: waiting: so far"},
		{name: "has its turn", before: "old", now: "new Turn", want: "wait: turn: so far"},
		{name: "tells for the first time", now: "new Turn", want: "wait: turn: so far"},
		{name: "stops", before: "old", now: "new Stopped", want: "refused: stopped: so far"},
		{name: "is done", before: "old", now: "new Done", want: "ready: has its agents"},
		{name: "is done, and not connected", before: "old", now: "new Done", isUnready: unready,
			want: "wait: has its agents, accepted, waiting for its tunnels"},
		{name: "is done, as bad as before", before: "old", now: "new Done", wasUnready: unready, isUnready: unready,
			want: "ready: has its agents, and is not ready, as before"},
		{name: "was away, and is", before: "old", now: "old Done", wasUnready: unready, lost: true,
			want: "ready: was not ready before"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &rolling{began: began, changes: true,
				before: map[string]memberBefore{"c1": {revision: c.before, ready: !c.wasUnready}}}
			m := &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
			if revision, state, tells := strings.Cut(c.now, " "); tells {
				m.Status.RollOut = &v1alpha1.MemberRollOut{Report: v1alpha1.RollOutReport{Revision: revision},
					State: v1alpha1.RollOutState(state), Message: "so far"}
			}
			m.Status.Conditions = ready
			if c.isUnready {
				m.Status.Conditions = ready[:1]
			}
			if got := standsAs(r.member(m, !c.lost, began.Add(c.after))); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
	m := &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	m.Spec.Phase = v1alpha1.MemberLeaving
	if got := standsAs((&rolling{changes: true}).member(m, true, began)); got != "ready: is leaving" {
		t.Errorf("one that leaves: %s", got)
	}
	m.Spec.Phase, m.Status.Conditions = v1alpha1.MemberActive, ready
	if got := standsAs((&rolling{}).member(m, true, began)); !strings.HasPrefix(got, "ready: has its agents") {
		t.Errorf("where no agents change: %s", got)
	}
}

func standsAs(r readiness) string {
	switch {
	case r.refused:
		return "refused: " + r.text
	case r.ready:
		return "ready: " + r.text
	}
	return "wait: " + r.text
}

// TestARecordIsWhatSomebodyWouldApply, without what Karmada and the API server have added.
func TestARecordIsWhatSomebodyWouldApply(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"data": map[string]any{"a": "b"}, "status": map[string]any{"x": "y"},
		"metadata": map[string]any{"name": "n", "namespace": "s", "uid": "u", "resourceVersion": "7", "generation": int64(3),
			"managedFields": []any{}, "labels": map[string]any{labelManagedBy: "sealane.io",
				"clusterpropagationpolicy.karmada.io/permanent-id": "p", "pod-security.kubernetes.io/enforce": "privileged"},
			"annotations": map[string]any{"policy.karmada.io/applied-placement": "{}", "sealane.io/kept": "1",
				"kubectl.kubernetes.io/last-applied-configuration": "{}"}}}}
	o := bare(live)
	if got, want := fmt.Sprint(o.Object), "map[apiVersion:v1 data:map[a:b] kind:ConfigMap metadata:map["+
		"annotations:map[sealane.io/kept:1] labels:map[app.kubernetes.io/managed-by:sealane.io "+
		"pod-security.kubernetes.io/enforce:privileged] name:n namespace:s]]"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if _, found, _ := unstructured.NestedString(live.Object, "metadata", "uid"); !found {
		t.Error("the object itself was changed")
	}
}

func TestWhatAnImageBecomes(t *testing.T) {
	for _, c := range []struct{ registry, stated, now, want string }{
		{"", "", "r.example:5000/p/agent:v1", "r.example:5000/p/agent:" + version.Version},
		{"", "", "r.example:5000/p/agent", "r.example:5000/p/agent:" + version.Version},
		{"", "", "r/agent:v1@sha256:00", "r/agent:" + version.Version},
		{"", "", "r/agent@sha256:00", "r/agent:" + version.Version},
		{"", "", "", defaultRegistry + "/agent:" + version.Version},
		{"mirror/", "", "r/agent:v1", "mirror/agent:" + version.Version},
		{"mirror", "x/y:z", "r/agent:v1", "x/y:z"},
	} {
		if got := (&upgrade{registry: c.registry}).becomes("agent", c.stated, c.now); got != c.want {
			t.Errorf("%+v becomes %s", c, got)
		}
	}
	for _, c := range []struct {
		a, b string
		want bool
	}{{"v1.2.3", "v1.2.2", true}, {"v1.2.3", "v1.2.3-5-gabc", false}, {"v1.10.0", "v1.9.9", true},
		{"dev", "v1.0.0", false}, {"v2.0.0", "v10.0.0", false}, {"", "v1.0.0", false}} {
		if got := newer(c.a, c.b); got != c.want {
			t.Errorf("%s newer than %s: %v", c.a, c.b, got)
		}
	}
}

// TestARecordThatDoesNotDecodeIsSaid: nobody goes back by half of what was installed.
func TestARecordThatDoesNotDecodeIsSaid(t *testing.T) {
	k := newKarmada(t)
	k.install(t)
	if err := k.writeRecord(t.Context(), &record{Agent: "a:v1"}); err != nil {
		t.Fatal(err)
	}
	if r, finished, err := k.readRecord(t.Context()); err != nil || finished || r.Agent != "a:v1" {
		t.Errorf("record %+v, finished %v, %v", r, finished, err)
	}
	if err := k.finishRecord(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, finished, err := k.readRecord(t.Context()); err != nil || !finished {
		t.Errorf("finished %v, %v", finished, err)
	}
	cm := &unstructured.Unstructured{}
	cm.SetAPIVersion("v1")
	cm.SetKind("ConfigMap")
	cm.SetName(recordName)
	cm.SetNamespace(v1alpha1.Namespace)
	k.get(t, cm)
	cm.Object["binaryData"] = map[string]any{recordObjects: "bm8="}
	if err := k.Update(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	k.fails(t, []string{recordName, "delete it"}, "upgrade", "--rollback", "--controller=external")
}
