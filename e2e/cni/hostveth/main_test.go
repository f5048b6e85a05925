// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// TestAPodAndItsNodeReachEachOther with macvlan between them, until the pod is deleted, which may be said twice.
func TestAPodAndItsNodeReachEachOther(t *testing.T) {
	runtime.LockOSThread() // for good: the thread, and with it the node's network namespace, ends with the test
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		t.Fatalf("this needs root: %v", err)
	}
	name := fmt.Sprintf("hostveth-%d", os.Getpid())
	mustRun(t, "ip", "netns", "add", name)
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "ip", "netns", "del", name).Run() })
	netns := "/run/netns/" + name
	if err := ip("", "link set lo up", "link add eth0 type veth peer name router", "link set router up",
		"link set eth0 up", "addr add 172.31.1.11/24 dev eth0", "link add mac0 link eth0 type macvlan mode bridge",
		"link set mac0 netns "+netns+" name eth0"); err != nil {
		t.Fatal(err)
	}
	if err := ip(netns, "link set eth0 up", "addr add 10.21.0.65/24 dev eth0",
		"route add default via 10.21.0.1 dev eth0"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CNI_CONTAINERID", "0123456789abcdef")
	t.Setenv("CNI_NETNS", netns)
	const result = `{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.21.0.65/24","gateway":"10.21.0.1"}]}`
	const config = `{"node":"172.31.1.11","routes":["10.143.0.0/16"],"prevResult":` + result + `}`
	plugin(t, "ADD", config, result)
	mustRun(t, "ping", "-c1", "-W2", "10.21.0.65")
	mustRun(t, "nsenter", "--net="+netns, "ping", "-c1", "-W2", "172.31.1.11")
	route := mustRun(t, "nsenter", "--net="+netns, "ip", "route", "get", "10.143.0.10")
	if !strings.Contains(route, "via 172.31.1.11 dev veth0 src 10.21.0.65") {
		t.Errorf("to a service: %s", route)
	}
	plugin(t, "DEL", "{}", "")
	plugin(t, "DEL", "{}", "")
	if links := mustRun(t, "ip", "-br", "link"); strings.Contains(links, hostLink()) {
		t.Errorf("left over: %s", links)
	}
}

// TestWithoutAResultBeforeItFails: the plugin is chained.
func TestWithoutAResultBeforeItFails(t *testing.T) {
	for _, in := range []string{`{"node":"172.31.1.11"}`, `{"prevResult":{"ips":[]}}`, `{"node":"x"}`, ``} {
		if err := run("ADD", strings.NewReader(in), &bytes.Buffer{}); err == nil {
			t.Errorf("%q was accepted", in)
		}
	}
}

func plugin(t *testing.T, command, in, want string) {
	t.Helper()
	var out bytes.Buffer
	if err := run(command, strings.NewReader(in), &out); err != nil || out.String() != want {
		t.Fatalf("%s: got %q, %v, want %q", command, &out, err, want)
	}
}

func mustRun(t *testing.T, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = os.Environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
	return string(out)
}
