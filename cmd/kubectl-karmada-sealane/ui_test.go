// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/ui"
)

// TestTheMapSaysWhatShowAndDiagnoseSay, of a fleet that is well, and of one that is not.
func TestTheMapSaysWhatShowAndDiagnoseSay(t *testing.T) {
	for name, change := range map[string]func(*snapshot){
		"ui-well.json": func(*snapshot) {},
		"ui-broken.json": func(s *snapshot) {
			g := the[*v1alpha1.Gateway](t, s.member("c1"), "c1-gw")
			g.Status.Connections[0].Status = v1alpha1.ConnectionError
			g.Status.Connections[0].Reason, g.Status.Connections[0].Active = v1alpha1.ReasonProbesLost, false
			*s.member("c2") = silent("c2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := well()
			change(s)
			got, err := json.MarshalIndent(s.picture(), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, append(got, '\n'))
		})
	}
}

// TestAPairIsAsTheWorseOfWhatItsClustersReport.
func TestAPairIsAsTheWorseOfWhatItsClustersReport(t *testing.T) {
	const up, down = v1alpha1.ConnectionConnected, v1alpha1.ConnectionError
	for _, c := range []struct {
		name string
		// what the gateways of c1 and of c2 report of each other.
		c1, c2 []v1alpha1.ConnectionStatus
		want   ui.State
	}{
		{"both are connected", []v1alpha1.ConnectionStatus{up}, []v1alpha1.ConnectionStatus{up}, ui.Connected},
		{"one is not", []v1alpha1.ConnectionStatus{up}, []v1alpha1.ConnectionStatus{down}, ui.Down},
		{"one of two tunnels is not", []v1alpha1.ConnectionStatus{up, down}, []v1alpha1.ConnectionStatus{up}, ui.Impaired},
		{"one says nothing", []v1alpha1.ConnectionStatus{up}, nil, ui.Unknown},
		{"one is down, the other says nothing", []v1alpha1.ConnectionStatus{down}, nil, ui.Down},
		{"one connects", []v1alpha1.ConnectionStatus{v1alpha1.ConnectionConnecting}, []v1alpha1.ConnectionStatus{up},
			ui.Connecting},
		{"a status of a later version", []v1alpha1.ConnectionStatus{"Resting"}, []v1alpha1.ConnectionStatus{up}, ui.Unknown},
		{"nobody says anything", nil, nil, ui.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := well()
			for name, reports := range map[string][]v1alpha1.ConnectionStatus{"c1": c.c1, "c2": c.c2} {
				g := the[*v1alpha1.Gateway](t, s.member(name), name+"-gw")
				usual := g.Status.Connections[0]
				g.Status.Connections = nil
				for _, status := range reports {
					usual.Status = status
					g.Status.Connections = append(g.Status.Connections, usual)
				}
			}
			m := s.picture()
			if len(m.Edges) != 1 || m.Edges[0].State != c.want {
				t.Errorf("%+v, want %s", m.Edges, c.want)
			}
		})
	}
}

// TestTheMapHasWhatIsMeasured: of gateways what each tunnel carries, of a member that cannot be asked what it reported.
func TestTheMapHasWhatIsMeasured(t *testing.T) {
	s := well()
	the[*v1alpha1.Gateway](t, s.member("c1"), "c1-gw").Status.Connections[0].Traffic = &v1alpha1.Traffic{
		ReceivedBytesPerSecond: 1_234_567, SentBytesPerSecond: 987}
	*s.member("c2") = silent("c2")
	the[*v1alpha1.Member](t, &s.karmada, "c2").Status.Connections = []v1alpha1.MemberConnection{{Cluster: "c1",
		Status: v1alpha1.ConnectionConnected, Measured: &v1alpha1.Measurements{RTTMicroseconds: 15_000, LossPercent: 2,
			Traffic: &v1alpha1.Traffic{ReceivedBytesPerSecond: 1000, SentBytesPerSecond: 1_000_000}}}}
	e := s.picture().Edges[0]
	var told []string
	for _, t := range e.Tunnels {
		told = append(told, fmt.Sprintf("%s rounded=%t %d us %d%% %s in %s out", t.From, t.Rounded, ptr.Deref(t.RTT, 0),
			ptr.Deref(t.Loss, 0), t.Received, t.Sent))
	}
	want := []string{
		"c1 rounded=false 1234 us 0% 1.2MB/s in 987B/s out", "c2 rounded=true 15000 us 2% ~1kB/s in ~1MB/s out",
	}
	if !slices.Equal(told, want) || ptr.Deref(e.RTT, 0) != 15_000 || ptr.Deref(e.Loss, 0) != 2 {
		t.Errorf("got %q, the pair %d us, %d%%; want %q, and the worst", told, ptr.Deref(e.RTT, 0),
			ptr.Deref(e.Loss, 0), want)
	}
}

// hundred is a snapshot of a hundred members, each with a tunnel to each other one, of which one is down.
func hundred() *snapshot {
	s := well()
	now, name := s.taken, func(i int) string { return fmt.Sprintf("c%d", i) }
	for i := 3; i <= 100; i++ {
		m := connectedMember(now, name(i), "c1", fmt.Sprintf("10.%d.0.0/16", i), fmt.Sprintf("10.%d.0.0/16", 101+i),
			fmt.Sprintf("172.30.%d.11", i))
		g := m.gateways[0].DeepCopy()
		s.karmada.objects = append(append(s.karmada.objects, m.DeepCopy()), carriedBy(m.Name)...)
		s.members = append(s.members, place{name: m.Name, context: m.Name, kubernetes: "v1.31.0",
			objects: append(usual(), g)})
	}
	for i := range s.members {
		g := of[*v1alpha1.Gateway](&s.members[i])[0]
		one := g.Status.Connections[0]
		g.Status.Connections = nil
		for j := 1; j <= 100; j++ {
			if other := name(j); other != s.members[i].name {
				one.Cluster, one.Gateway = other, other+"-gw"
				one.Status = v1alpha1.ConnectionConnected
				if s.members[i].name == "c7" && j == 93 {
					one.Status = v1alpha1.ConnectionError
				}
				g.Status.Connections = append(g.Status.Connections, one)
			}
		}
	}
	return s
}

// TestTheMapOfAHundredClusters has every pair once, and the one that is down.
func TestTheMapOfAHundredClusters(t *testing.T) {
	s := hundred()
	began := time.Now()
	m := s.picture()
	t.Logf("made in %s", time.Since(began).Round(time.Millisecond))
	states := map[ui.State]int{}
	for _, e := range m.Edges {
		states[e.State]++
		if e.State == ui.Down && (e.A != "c7" || e.B != "c93") {
			t.Errorf("%s and %s are down", e.A, e.B)
		}
	}
	if len(m.Clusters) != 100 || states[ui.Connected] != 4949 || states[ui.Down] != 1 {
		t.Errorf("%d clusters, pairs %v", len(m.Clusters), states)
	}
	text, err := json.Marshal(m)
	if err != nil || len(text) > 8<<20 {
		t.Errorf("the map has %d bytes: %v", len(text), err)
	}
	again, err := json.Marshal(hundred().picture())
	if err != nil || !bytes.Equal(text, again) {
		t.Errorf("the map of the same snapshot is another: %v", err)
	}
}

// TestTheMapOfAFile is written as a picture, and packets are followed through it, without an API server.
func TestTheMapOfAFile(t *testing.T) {
	file := archived(t, wired(t))
	var out bytes.Buffer
	streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out}
	if code := run([]string{"kubectl-sealane", "ui", "--from", file, "-o", "svg"}, streams); code != 0 ||
		!strings.HasPrefix(out.String(), "<svg ") || !strings.Contains(out.String(), "c1 and c2: ") {
		t.Errorf("exit code %d: %.300s", code, out.String())
	}
	source := newLiveMap(&diagnoses{options: offline(), from: file})
	e, err := source.Explain(t.Context(), "c1/10.8.1.5", "10.9.1.7:80")
	if err != nil || len(e.Steps) == 0 || e.Arrives != "yes" {
		t.Errorf("%+v: %v", e, err)
	}
	for from, to := range map[string]string{"c1": "10.9.1.7", "c1/10.8.1.5": "c9/10.9.1.7", "c9/10.8.1.5": "10.9.1.7"} {
		if _, err := source.Explain(t.Context(), from, to); err == nil || !strings.Contains(err.Error(), "to do:") {
			t.Errorf("from %s to %s: %v", from, to, err)
		}
	}
}

// TestWrongCommandLinesOfUI say what to do.
func TestWrongCommandLinesOfUI(t *testing.T) {
	for _, line := range [][]string{
		{"ui", "-o", "json"}, {"ui", "--port", "70000"}, {"ui", "--from", "/does/not/exist"},
	} {
		var out bytes.Buffer
		streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out}
		code := run(append([]string{"kubectl-sealane"}, line...), streams)
		if code != 1 || !strings.Contains(out.String(), "to do:") {
			t.Errorf("%v: exit code %d: %s", line, code, out.String())
		}
	}
}

// TestThePageFollowsTheClusters: one API server plays Karmada and c1, and c2 cannot be asked. A tunnel that goes down
// is seen within some seconds, and the command ends when it is told to.
func TestThePageFollowsTheClusters(t *testing.T) {
	k := newKarmada(t)
	k.kubeconfig = writeKubeconfig(t, server, "karmada", "lost-member", "c1")
	k.install(t, "-C", "c1,c2")
	k.report(t, []string{"c1", "c2"}, connected()...)
	gateway := &v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "c1-gw"}}
	k.temporary(t, gateway)
	report := func(status v1alpha1.ConnectionStatus) {
		t.Helper()
		k.get(t, gateway)
		gateway.Status = v1alpha1.GatewayStatus{ReportedAt: ptr.To(metav1.Now()), Version: "v0.0.1",
			Connections: []v1alpha1.Connection{{Cluster: "c2", Gateway: "c2-gw", Link: "sl-c0", Status: status}}}
		if err := k.Status().Update(t.Context(), gateway); err != nil {
			t.Fatal(err)
		}
	}
	member := &v1alpha1.Member{}
	if err := k.Get(t.Context(), client.ObjectKey{Name: "c2"}, member); err != nil {
		t.Fatal(err)
	}
	member.Status.Connections = []v1alpha1.MemberConnection{{Cluster: "c1", Status: v1alpha1.ConnectionConnected}}
	if err := k.Status().Update(t.Context(), member); err != nil {
		t.Fatal(err)
	}
	report(v1alpha1.ConnectionConnected)
	address, stop := k.ui(t)
	frames := k.frames(t, address)
	within := func(want ui.State) {
		t.Helper()
		deadline := time.After(time.Minute)
		for last := ""; ; {
			select {
			case m := <-frames:
				if len(m.Edges) == 1 && m.Edges[0].State == want {
					return
				}
				last = fmt.Sprintf("%+v", m.Edges)
			case <-deadline:
				t.Fatalf("the pair is not %s: %s", want, last)
			}
		}
	}
	within(ui.Connected)
	report(v1alpha1.ConnectionError)
	within(ui.Down)
	report(v1alpha1.ConnectionConnected)
	within(ui.Connected)
	stop()
}

// ui starts the command, and returns the address that it prints and what ends it.
func (k *karmada) ui(t *testing.T) (string, func()) {
	t.Helper()
	in, out := io.Pipe()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	root := newRoot("kubectl-karmada-sealane", genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: out, ErrOut: out})
	root.SetArgs([]string{"ui", "--kubeconfig=" + k.kubeconfig, "--karmada-context=karmada", "--member-timeout=1s"})
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		_ = out.CloseWithError(err)
		ended <- err
	}()
	stop := func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			ended <- nil
		case <-time.After(time.Minute):
			t.Error("the command does not end")
		}
	}
	t.Cleanup(stop)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if address := regexp.MustCompile(`http://127\.0\.0\.1:\d+/\?token=\S+`).FindString(lines.Text()); address != "" {
			go func() { _, _ = io.Copy(io.Discard, in) }()
			return address, stop
		}
	}
	t.Fatalf("the command prints no address: %v", lines.Err())
	panic("unreachable")
}

// frames are the maps that a page gets.
func (k *karmada) frames(t *testing.T, address string) <-chan ui.Map {
	t.Helper()
	base, token, _ := strings.Cut(address, "?token=")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	out := make(chan ui.Map, 100)
	go func() {
		lines := bufio.NewScanner(answer.Body)
		lines.Buffer(nil, 32<<20)
		for lines.Scan() {
			var f struct{ Map *ui.Map }
			data, is := strings.CutPrefix(lines.Text(), "data: ")
			if is && json.Unmarshal([]byte(data), &f) == nil && f.Map != nil {
				out <- *f.Map
			}
		}
	}()
	return out
}
