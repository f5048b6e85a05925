// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/explain"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/probe"
	"github.com/sealane-io/sealane/internal/trace"
)

const (
	// listenPatience is how long the node agents have to begin to watch, and endPatience to tell the rest.
	listenPatience = 10 * time.Second
	endPatience    = 5 * time.Second
	// settle is how long they go on when the probe has ended: what it has sent may still be on its way.
	settle = 200 * time.Millisecond
	// aboveMinPort is how many source ports there are to choose from.
	aboveMinPort = 1<<16 - 1 - trace.MinPort
)

// live sends a packet on its way, has the node agents there watch it, and adds to the explanation what it met.
func (s *snapshot) live(ctx context.Context, from explain.Place, r explain.Request, f *fleet) (*explain.Explanation,
	error) {
	plane := s.dataPlane(f)
	e, target := explain.Aim(plane, r)
	if target.Source.Node == "" {
		return &e, nil // the explanation says why nothing can be sent
	}
	sent := explain.Sent{Port: uint16(trace.MinPort + rand.N(aboveMinPort)),
		Mark: probe.Mark(target.Port.Number, rand.Uint32())}
	source, err := s.sender(ctx, from, target.Source.Node, plane)
	if !target.Port.Supported() || target.Port.Number == 0 || target.Host == "" {
		err = &finding{expected: "a destination with a port, TCP or UDP, that a probe can be sent to",
			found: fmt.Sprintf("%s, port %s", e.To, target.Port), remedy: "name the port, as in " + e.To + ":80 or :53/udp"}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil { // what the objects tell holds all the same
		sent.Failed = notSent(target.Source, err)
		out := explain.Judge(e, target, sent, nil)
		return &out, nil
	}
	watch, cancel := context.WithTimeout(ctx, trace.MaxDuration+endPatience)
	defer cancel()
	watchers := s.watch(watch, plane, &target, sent.Port)
	defer func() {
		for _, w := range watchers {
			w.end()
		}
	}()
	if slices.ContainsFunc(watchers, func(w *watcher) bool { return w.is(target.Source) && w.listens() }) {
		sent.Result, sent.Failed = source.send(ctx, &target, &sent)
	} else {
		sent.Failed = &explain.Step{At: target.Source.String(), Name: "probe", Verdict: explain.Warn,
			Expected: "the agent of the source's node to watch the probe",
			Found:    "no packet was sent, for it does not: " + watchers[0].told().Failed,
			Remedy:   "see the pods of the node agents: " + source.kubectl + " -n sealane-system get pods -o wide"}
	}
	select {
	case <-time.After(settle):
	case <-ctx.Done():
	}
	for _, w := range watchers {
		w.end()
	}
	watched := make([]explain.Watched, len(watchers))
	for i, w := range watchers {
		w.wait(endPatience)
		watched[i] = w.told()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := explain.Judge(e, target, sent, watched)
	return &out, nil
}

// watcher is the trace of a node's agent.
type watcher struct {
	explain.Spot
	port uint16
	// stdin ends the trace when it is closed.
	stdin *io.PipeWriter
	// listening and ended are closed when it begins and ends.
	listening, ended chan struct{}

	sync.Mutex
	rest   bytes.Buffer
	lines  []trace.Line
	size   int
	failed string
}

// watch has the agents of all nodes begin, and returns when each has, or has failed to.
func (s *snapshot) watch(ctx context.Context, plane *explain.Fleet, t *explain.Target, port uint16) []*watcher {
	args := []string{"trace", "--until-eof", fmt.Sprintf("--port=%d", port), "--duration=" + trace.MaxDuration.String(),
		"--protocol=" + strings.ToLower(string(t.Port.Protocol))}
	all := make([]*watcher, len(t.Spots))
	for i, spot := range t.Spots {
		w := &watcher{Spot: spot, port: port, listening: make(chan struct{}), ended: make(chan struct{})}
		all[i] = w
		p := s.member(spot.Cluster)
		pod, why := runningAgent(plane, spot)
		if why == "" && (p == nil || p.api == nil) {
			why = "its cluster could not be asked"
		}
		if why != "" {
			w.failed = why
			close(w.ended)
			continue
		}
		var stdin *io.PipeReader
		stdin, w.stdin = io.Pipe()
		go func() {
			defer close(w.ended)
			said := &bounded{limit: 1 << 10}
			args := slices.Clone(args)
			for _, a := range t.LookUps(spot) {
				args = append(args, "--look-up="+a.String())
			}
			err := execute(ctx, p.api, pod, remotecommand.StreamOptions{Stdin: stdin, Stdout: w, Stderr: said}, args...)
			w.Lock()
			defer w.Unlock()
			complete := len(w.lines) > 0 && w.lines[len(w.lines)-1].Ended
			if text := said.String(); err != nil && !complete {
				w.failed = unwatched(err, text)
			}
		}()
	}
	patience, cancel := context.WithTimeout(ctx, listenPatience)
	defer cancel()
	for _, w := range all {
		select {
		case <-w.listening:
		case <-w.ended:
		case <-patience.Done():
			w.Lock()
			w.failed = fmt.Sprintf("its agent did not begin within %s", listenPatience)
			w.Unlock()
		}
	}
	return all
}

// unwatched says why a trace failed, in words.
func unwatched(err error, said string) string {
	if strings.Contains(said, "unknown command") {
		return "its agent is older than explain --live: upgrade the member"
	}
	const enough = 300
	text := err.Error()
	if said != "" {
		text = said
	}
	return clip.Text(clip.Line(strings.TrimSpace(text)), enough)
}

// runningAgent is the pod of a node's agent; why there is none else.
func runningAgent(plane *explain.Fleet, spot explain.Spot) (pod *corev1.Pod, why string) {
	for i := range plane.Members {
		m := &plane.Members[i]
		for j := range m.Agents {
			a := &m.Agents[j]
			if m.Name != spot.Cluster || a.Spec.NodeName != spot.Node || a.Status.Phase != corev1.PodRunning {
				continue
			}
			if pod == nil || waits(a) < waits(pod) { // of two, one waits beside the other for its turn
				pod = a
			}
		}
	}
	if pod == nil {
		return nil, "no node agent runs on " + spot.Node
	}
	return pod, ""
}

func (w *watcher) is(s explain.Spot) bool { return w.Spot == s }

func (w *watcher) listens() bool {
	select {
	case <-w.listening:
		return true
	default:
		return false
	}
}

// end the trace.
func (w *watcher) end() {
	if w.stdin != nil {
		_ = w.stdin.Close()
	}
}

// wait for the trace to have ended.
func (w *watcher) wait(patience time.Duration) {
	select {
	case <-w.ended:
	case <-time.After(patience):
	}
}

func (w *watcher) told() explain.Watched {
	w.Lock()
	defer w.Unlock()
	return explain.Watched{Spot: w.Spot, Lines: slices.Clone(w.lines), Failed: w.failed}
}

// Write takes what the agent prints, and keeps of it what a trace can tell.
func (w *watcher) Write(data []byte) (int, error) {
	w.Lock()
	defer w.Unlock()
	if w.size += len(data); w.size > (trace.MaxLines+100)*trace.MaxLine || len(w.lines) > trace.MaxLines+100 {
		return len(data), nil // so that who writes goes on
	}
	w.rest.Write(data)
	for {
		at := bytes.IndexByte(w.rest.Bytes(), '\n')
		if at < 0 {
			if w.rest.Len() > trace.MaxLine {
				w.rest.Reset()
			}
			return len(data), nil
		}
		line := bytes.Clone(w.rest.Next(at + 1))
		l, err := trace.Parse(line, w.port)
		if err != nil {
			continue // no word of a trace
		}
		w.lines = append(w.lines, l)
		if l.Listening && !w.listens() {
			close(w.listening)
		}
	}
}
