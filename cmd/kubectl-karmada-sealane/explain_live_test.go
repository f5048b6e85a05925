// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/explain"
	"github.com/sealane-io/sealane/internal/trace"
)

// TestATraceIsNotTrusted: whatever an agent prints, in whatever pieces, what is kept is bounded and of a trace.
func TestATraceIsNotTrusted(t *testing.T) {
	w := &watcher{port: trace.MinPort, listening: make(chan struct{}), ended: make(chan struct{})}
	write := func(text string) {
		t.Helper()
		if n, err := w.Write([]byte(text)); err != nil || n != len(text) {
			t.Fatalf("%d, %v", n, err)
		}
	}
	write("no JSON\n{\"listening\":1}\n" + strings.Repeat("x", 3*trace.MaxLine) + "\n")
	if w.listens() {
		t.Error("it listens without having said so")
	}
	write(`{"liste`)
	write("ning\":true}\n{\"listening\":true}\n")
	if !w.listens() {
		t.Error("it does not listen")
	}
	for i := range 10 * trace.MaxLines {
		write(fmt.Sprintf("{\"missed\":{\"what\":\"rules\",\"why\":\"\\u001b[31m %d\"}}\n", i))
	}
	told := w.told()
	if len(told.Lines) > 2*trace.MaxLines || w.rest.Len() > trace.MaxLine {
		t.Errorf("%d lines are kept, and %d bytes", len(told.Lines), w.rest.Len())
	}
	for _, l := range told.Lines {
		if l.Missed != nil && strings.ContainsAny(l.Missed.Why, "\x1b") {
			t.Fatalf("%q", l.Missed.Why)
		}
	}
	began := time.Now()
	w.wait(10 * time.Millisecond) // it never ends
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it is waited for %s", took)
	}
	if got := unwatched(errors.New("exit 1"), "error: unknown command \"trace\""); !strings.Contains(got, "upgrade") {
		t.Errorf("an older agent: %s", got)
	}
	if got := unwatched(errors.New("exit 1"), "\x1b[2J"+strings.Repeat("y", 5000)); len(got) > 400 ||
		strings.Contains(got, "\x1b") {
		t.Errorf("a hostile agent: %q", got)
	}
}

// TestTheAgentThatWorksIsAsked: of two on a node the one that is ready, and none of another cluster or that has ended.
func TestTheAgentThatWorksIsAsked(t *testing.T) {
	agent := func(name, node string, phase corev1.PodPhase, ready corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
	}
	plane := &explain.Fleet{Members: []explain.Member{
		{Name: "c2", Agents: []corev1.Pod{agent("other", "w", corev1.PodRunning, corev1.ConditionTrue)}},
		{Name: "c1", Agents: []corev1.Pod{agent("ended", "w", corev1.PodFailed, corev1.ConditionTrue),
			agent("waits", "w", corev1.PodRunning, corev1.ConditionFalse),
			agent("works", "w", corev1.PodRunning, corev1.ConditionTrue)}}}}
	if pod, why := runningAgent(plane, explain.Spot{Cluster: "c1", Node: "w"}); why != "" || pod.Name != "works" {
		t.Errorf("%v, %s", pod, why)
	}
	if pod, why := runningAgent(plane, explain.Spot{Cluster: "c1", Node: "x"}); why == "" || pod != nil {
		t.Errorf("%v, %s", pod, why)
	}
}

// TestTheAgentsOwnImageIsUsed, and not that of a container that somebody adds before it.
func TestTheAgentsOwnImageIsUsed(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "sidecar", Image: "x/sidecar"}}}}
	if got := agentImage(pod); got != "" {
		t.Errorf("without it: %s", got)
	}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: nodeContainer, Image: "x/agent"})
	if got := agentImage(pod); got != "x/agent" {
		t.Error(got)
	}
}

// TestExplainLiveNeedsALiveSource: a file has none. Where nothing can be sent, the steps that the objects tell stay,
// the last one says why, and whether packets arrive is not known.
func TestExplainLiveNeedsALiveSource(t *testing.T) {
	e := &explaining{options: offline(), output: outputTable, from: "file.tgz", live: true}
	err := e.run(t.Context(), "c1/10.8.1.5", "10.9.1.7:80")
	if err == nil || !strings.Contains(err.Error(), "either --live or --from") {
		t.Errorf("--from with --live: %v", err)
	}
	s := wired(t)
	source, _ := explain.ParsePlace("c1/10.8.1.5")
	for to, want := range map[string]string{"10.9.1.7": "with a port", "10.9.1.7:80/sctp": "TCP or UDP",
		"10.9.1.7:80": "to ask c1, from which the probe is to be sent"} {
		destination, err := explain.ParseDestination(to)
		if err != nil {
			t.Fatal(err)
		}
		without, err := s.explain(t.Context(), source, destination)
		if err != nil || without.Arrives != explain.Arrives {
			t.Fatalf("%s without --live: %+v, %v", to, without, err)
		}
		got, err := s.explainLive(t.Context(), source, destination)
		if err != nil {
			t.Fatal(err)
		}
		steps := len(without.Steps)
		if len(got.Steps) != steps+1 || !reflect.DeepEqual(got.Steps[:steps], without.Steps) {
			t.Errorf("%s: the steps without --live are not there: %+v", to, got.Steps)
		}
		last := got.Steps[len(got.Steps)-1]
		if last.Verdict != explain.Warn || !strings.Contains(last.Expected, want) || last.Remedy == "" ||
			!strings.HasPrefix(last.Found, "no packet was sent: ") {
			t.Errorf("%s: %+v", to, last)
		}
		if got.Arrives != explain.Unknown || got.Live.Probe != "not sent" || got.Err() == nil {
			t.Errorf("%s: arrives %s, probe %q, %v", to, got.Arrives, got.Live.Probe, got.Err())
		}
	}
}
