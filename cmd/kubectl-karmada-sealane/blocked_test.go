// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// podThatWaits for what keeps its container from starting.
func podThatWaits(name, node, image, reason, message string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: name},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "agent", Image: image}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "agent", Image: image,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}}}
}

// The messages are those of containerd 1.6, and of CRI-O.
func TestWhatKeepsPodsFromStarting(t *testing.T) {
	const typo = "r.example/agent:typo"
	const resolve = `failed to pull and unpack image "` + typo + `": failed to resolve reference "` + typo + `": `
	unscheduled := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: corev1.PodStatus{
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: "Unschedulable", Message: "0/2 nodes are available"}}}}
	ending := podThatWaits("p", "n", typo, "ErrImagePull", "not found")
	ending.DeletionTimestamp = &metav1.Time{}
	for name, tc := range map[string]struct {
		pods []corev1.Pod
		want string
	}{
		"not there": {[]corev1.Pod{podThatWaits("a", "n1", typo, "ErrImagePull",
			"rpc error: code = NotFound desc = "+resolve+typo+": not found")},
			"pod a on n1: image " + typo + " cannot be pulled: not found"},
		"the same, waiting": {[]corev1.Pod{podThatWaits("a", "n1", typo, "ImagePullBackOff", `Back-off pulling image "`+
			typo+`": ErrImagePull: rpc error: code = NotFound desc = `+resolve+typo+": not found")},
			"pod a on n1: image " + typo + " cannot be pulled: not found"},
		"of several pods": {[]corev1.Pod{
			podThatWaits("a", "n1", typo, "ImagePullBackOff", `Back-off pulling image "`+typo+`"`),
			podThatWaits("b", "n2", typo, "ErrImagePull", resolve+"dial tcp 192.0.2.1:443: connect: connection refused"),
			podThatWaits("c", "n3", typo, "ErrImagePull", resolve+"another")},
			"pod a on n1, pod b on n2 and 1 more: image " + typo + " cannot be pulled: " +
				"dial tcp 192.0.2.1:443: connect: connection refused"},
		"CRI-O": {[]corev1.Pod{podThatWaits("a", "n1", typo, "ErrImagePull",
			"initializing source docker://"+typo+": reading manifest typo in r.example/agent: manifest unknown")},
			"pod a on n1: image " + typo + " cannot be pulled: initializing source docker://" + typo +
				": reading manifest typo in r.example/agent: manifest unknown"},
		"no such Secret": {[]corev1.Pod{podThatWaits("a", "n1", "x", "CreateContainerConfigError", `secret "s" not found`)},
			`pod a on n1: CreateContainerConfigError: secret "s" not found`},
		"crashes": {[]corev1.Pod{podThatWaits("a", "n1", "x", "CrashLoopBackOff", "back-off 10s restarting")},
			"pod a on n1: container agent ends again and again, see its log"},
		"no node": {[]corev1.Pod{unscheduled}, "pod p: no node takes it: 0/2 nodes are available"},
		"two causes": {[]corev1.Pod{unscheduled, podThatWaits("a", "n1", "x", "InvalidImageName", "")},
			"pod a on n1: image x cannot be pulled: InvalidImageName; pod p: no node takes it: 0/2 nodes are available"},
		"starts": {[]corev1.Pod{podThatWaits("a", "n1", "x", "ContainerCreating", "")}, ""},
		"ends":   {[]corev1.Pod{ending}, ""},
		"a hostile member": {[]corev1.Pod{podThatWaits("a", "n1", "x", "ErrImagePull", "\x1b[2J"+strings.Repeat("y", 1000))},
			"pod a on n1: image x cannot be pulled:  [2J" + strings.Repeat("y", maxBlocked-len(" [2J")-len("…")) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := new(startingPods).causes(tc.pods); got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

// TestCausesOfAHostileMemberAreBounded: how many there are, and what they and their pods are called.
func TestCausesOfAHostileMemberAreBounded(t *testing.T) {
	var pods []corev1.Pod
	for i := range 1000 {
		name := fmt.Sprintf("\x1b[2J%d%s", i, strings.Repeat("n", 1000))
		pods = append(pods, podThatWaits(name, name, "x", name, name))
		crashes := podThatWaits(name, name, "x", "CrashLoopBackOff", "")
		crashes.Status.ContainerStatuses[0].Name = name
		pods = append(pods, crashes)
	}
	got := new(startingPods).causes(pods)
	if most := (maxCauses + 1) * (maxBlocked + 2*maxName + 100); len(got) > most || strings.Contains(got, "\x1b") ||
		!strings.HasSuffix(got, "and 1996 more causes") {
		t.Errorf("%d bytes, at most %d are allowed: %q", len(got), most, got[:min(len(got), 1000)])
	}
}

// TestManyPodsAreReadLessOften: a namespace of many nodes' agents is not read every second.
func TestManyPodsAreReadLessOften(t *testing.T) {
	k := newKarmada(t)
	k.namespace(t, "many")
	for i := range perLook {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "many", Name: fmt.Sprintf("p%d", i)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}}}
		k.create(t, pod)
		k.goes(t, pod)
	}
	var few, many startingPods
	began := time.Now()
	few.blocked(t.Context(), k.api, "none")
	many.blocked(t.Context(), k.api, "many")
	if few.until.After(time.Now()) || many.until.Before(began.Add(lookAgain)) {
		t.Errorf("few are read again in %s, many in %s", few.until.Sub(began), many.until.Sub(began))
	}
	many.told = "as before"
	many.until = time.Now().Add(time.Hour)
	if got := many.blocked(t.Context(), k.api, "many"); got != "as before" {
		t.Errorf("they are read again: %q", got)
	}
}

// TestWhyAnImageIsMissingIsKept while the kubelet says only that it waits before it tries again.
func TestWhyAnImageIsMissingIsKept(t *testing.T) {
	var s startingPods
	first := s.causes([]corev1.Pod{podThatWaits("a", "n", "x", "ErrImagePull", "unauthorized")})
	waits := podThatWaits("a", "n", "x", "ImagePullBackOff", `Back-off pulling image "x"`)
	for range 2 {
		if got := s.causes([]corev1.Pod{waits}); got != first || !strings.HasSuffix(got, "unauthorized") {
			t.Errorf("got %q after %q", got, first)
		}
	}
	if got := s.causes(nil); got != "" {
		t.Errorf("got %q without pods", got)
	}
}

// TestInstallNamesAnImageThatCannotBePulled of a member whose agent cannot tell, and of the controller.
func TestInstallNamesAnImageThatCannotBePulled(t *testing.T) {
	const typo = "r.example/agent:typo"
	k := newKarmada(t)
	k.install(t)
	pods := map[string]corev1.Pod{}
	for _, namespace := range []string{v1alpha1.Namespace, controllerName} {
		pod := podThatWaits("waits", "", typo, "ErrImagePull", "unauthorized")
		pod.Namespace = namespace
		pods[namespace] = pod
	}
	place := func(namespace string) {
		t.Helper()
		pod := pods[namespace]
		status := pod.Status
		k.create(t, &pod)
		pod.Status = status
		if err := k.Status().Update(t.Context(), &pod); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = k.Delete(context.WithoutCancel(t.Context()), &pod) })
	}
	place(v1alpha1.Namespace)
	// Of c1 nobody can ask: there is no context of that name, and no cluster proxy.
	k.report(t, []string{"c1", "lost-member"})
	const waits = ": waiting for the facts of its agent"
	const said = "pod waits: image " + typo + " cannot be pulled: unauthorized"
	refuse := func() {
		k.report(t, []string{"c1", "lost-member"}, condition(v1alpha1.MemberAccepted, metav1.ConditionFalse,
			v1alpha1.ReasonCIDROverlap, ""))
	}
	out := k.saysAndWaits(t, "lost-member"+waits+"; "+said, 1, refuse, "install", "--controller=external",
		"--controller-kubeconfig="+filepath.Join(t.TempDir(), "kubeconfig"))
	if !strings.Contains(out, "c1"+waits+"\n") {
		t.Error("something is said of a member that nobody can ask")
	}

	k.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: controllerName}})
	place(controllerName)
	host := "--host-context=lost-member"
	k.saysAndWaits(t, "0 available; "+said, 0, func() { k.plays(t) }, "install", host, "--wait=false",
		"--karmada-server=https://karmada.example:5443",
		"--controller-image=r.example/controller@sha256:"+strings.Repeat("0", 64))
	if out := k.succeeds(t, "show", "versions", host); !strings.Contains(out, untagged) {
		t.Error("an image without a tag is said to be of a version")
	}
}

// saysAndWaits runs a command that says something and waits for what is done then, and returns all that it said.
func (k *karmada) saysAndWaits(t *testing.T, word string, want int, then func(), args ...string) string {
	t.Helper()
	heard := &listener{word: word, said: make(chan struct{})}
	code := make(chan int, 1)
	go func() {
		streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: heard, ErrOut: heard}
		code <- run(append([]string{"kubectl-karmada-sealane", "--kubeconfig=" + k.kubeconfig, "--karmada-context=karmada",
			"--timeout=3m"}, args...), streams)
	}()
	select {
	case <-heard.said:
		then()
	case c := <-code:
		t.Fatalf("%v: exit code %d without %q:\n%s", args, c, word, heard.String())
	}
	if c := <-code; c != want {
		t.Errorf("%v: exit code %d, expected %d", args, c, want)
	}
	t.Logf("%v\n%s", args, heard.String())
	return heard.String()
}

// listener is written to, and closes said when it has got a word.
type listener struct {
	mu   sync.Mutex
	text strings.Builder
	word string
	said chan struct{}
}

func (l *listener) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := strings.Contains(l.text.String(), l.word)
	l.text.Write(p)
	if !before && strings.Contains(l.text.String(), l.word) {
		close(l.said)
	}
	return len(p), nil
}

func (l *listener) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
