// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDownRemovesPodsWhateverDiedBefore kills what pods depend on, in an order that orphans them, as a crash or an
// impatient administrator does: first the container runtime, which ends the containers of a shim that dies, then shims,
// then the process that holds the node's namespaces. After Down no process, namespace, cgroup, mount or link of the
// lab is left.
func TestDownRemovesPodsWhateverDiedBefore(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test boots a lab: expected root")
	}
	name := filepath.Join(t.TempDir(), "lab")
	var out strings.Builder
	topology := Topology{Clusters: []Cluster{{Name: "c1", Nodes: []Node{{Name: "c1-gw", Gateway: true}}}}}
	t.Cleanup(func() {
		if err := Down(context.Background(), name, nil); err != nil {
			t.Error(err)
		}
	})
	l, err := Up(t.Context(), Options{Name: name, Topology: topology, Out: &out})
	if err != nil {
		t.Fatalf("%v; progress:\n%s", err, &out)
	}
	// It writes nothing, so that it does not end by itself when its shim does.
	_, err = l.Kubectl(t.Context(), "--context", "c1", "create", "deployment", "silent", "--replicas=2", "--image="+
		ImageWhereami)
	if err == nil {
		_, err = l.Kubectl(t.Context(), "--context", "c1", "rollout", "status", "deployment/silent", "--timeout=120s")
	}
	if err != nil {
		t.Fatal(err)
	}
	pods := namedLike(l, "whereami")
	if len(pods) != 2 {
		t.Fatalf("expected the servers of 2 pods in the lab's cgroups, found %v", pods)
	}
	networks := map[string]bool{}
	for _, p := range pods {
		networks[networkOf(p.PID)] = true
	}

	for _, victims := range [][]process{
		recorded(t, l, "c1-gw-containerd"), namedLike(l, "containerd-shim"), recorded(t, l, "c1-gw-init"),
		recorded(t, l, "etcd"),
	} {
		if len(victims) == 0 {
			t.Fatal("expected a process to kill")
		}
		for _, v := range victims {
			if err := v.signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			waitGone(t.Context(), v)
		}
	}
	for _, p := range pods {
		if !p.alive() {
			t.Errorf("pid %d ended with its shim, so this test shows nothing", p.PID)
		}
	}

	if err := Down(t.Context(), name, &out); err != nil {
		t.Fatalf("%v; progress:\n%s", err, &out)
	}
	for _, p := range pods {
		if p.alive() {
			t.Errorf("the pod's process %d survived", p.PID)
		}
	}
	if left := leftovers(t, l.layout); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if users := usersOf(t, networks); len(users) > 0 {
		t.Errorf("in the pods' network namespaces: %q", users)
	}
}

// TestDownDuringBoot: Down while Up still starts things, as after Ctrl-C.
func TestUpThatIsInterruptedLeavesNothingAfterDown(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces: expected root")
	}
	name := filepath.Join(t.TempDir(), "lab")
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		//nolint:contextcheck // it has the context of the test
		_, err := Up(ctx, Options{Name: name, toolsDir: brokenTools(t)})
		ended <- err
	}()
	wait, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := poll(wait, 5*time.Millisecond, func(context.Context) error {
		l, err := Open(name)
		if err == nil && len(l.remaining()) < 3 {
			err = fmt.Errorf("%d processes so far", len(l.remaining()))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	interrupt()
	if err := <-ended; err == nil {
		t.Error("expected the interrupted Up to fail")
	}
	l, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := Down(t.Context(), name, nil); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(t, l.layout); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// namedLike lists the lab's processes whose command begins with a prefix.
func namedLike(l *Lab, prefix string) []process {
	var found []process
	for _, p := range l.remaining() {
		if strings.HasPrefix(p.Name, prefix) && l.inCgroup(fmt.Sprintf("/proc/%d", p.PID)) {
			found = append(found, p)
		}
	}
	return found
}

func recorded(t *testing.T, l *Lab, name string) []process {
	t.Helper()
	p, err := l.procs.Load(name)
	if err != nil || !p.alive() {
		t.Fatalf("%s does not run: %v", name, err)
	}
	return []process{p}
}

// networkOf names the network namespace of a process.
func networkOf(pid int) string {
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return ""
	}
	return name
}

// usersOf lists the processes in some network namespaces.
func usersOf(t *testing.T, networks map[string]bool) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	var users []string
	for _, link := range links {
		if name, err := os.Readlink(link); err == nil && networks[name] {
			users = append(users, link)
		}
	}
	return users
}

func TestChooseHierarchy(t *testing.T) {
	const (
		v1 = "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n" +
			"cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n" +
			"cgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0\n"
		hybrid = v1 + "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
		v2     = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n"
	)
	for mounts, want := range map[string]string{
		v1: "/sys/fs/cgroup/freezer", hybrid: "/sys/fs/cgroup/unified", v2: "/sys/fs/cgroup",
	} {
		if got, err := chooseHierarchy(mounts); err != nil || got != want {
			t.Errorf("expected %s, found %q, %v", want, got, err)
		}
	}
	if got, err := chooseHierarchy("proc /proc proc rw 0 0\n"); err == nil {
		t.Errorf("expected an error without cgroups, found %q", got)
	}
}
