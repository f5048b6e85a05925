// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"os/exec"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// keepsToOneBackend: of a service with session affinity a client reaches one backend, by whatever protocol and port,
// and connections from before stay.
func (n *twins) keepsToOneBackend(t *testing.T, f family) {
	to := f.port(serviceOfTwin2, "80")
	old, err := dialFrom(t, n.worker1.pod, f.tcp(), to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Read(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	both := []string{"10.7.0.10", "10.7.1.10"}
	n.affinity = corev1.ServiceAffinityClientIP
	n.tellTwins(t, v1alpha1.MemberActive, both)
	defer func() {
		n.affinity = ""
		n.tellTwins(t, v1alpha1.MemberActive, both)
		eventually(t, 5*time.Second, "both backends answer one client again", func() bool {
			return len(n.answerers(t, n.worker1.pod, f, to)) == 2
		})
	}()
	for name, from := range map[string]*exec.Cmd{"a pod of a worker": n.worker1.pod, "a pod of a gateway": n.gw1.pod,
		"a worker": n.worker1.holder, "a gateway": n.gw1.holder} {
		eventually(t, 5*time.Second, "one backend answers "+name, func() bool {
			return len(n.answerers(t, from, f, to)) == 1
		})
	}
	if err := asks(old); err != nil {
		t.Errorf("a connection from before: %v", err)
	}
}

// answerers of many connections and datagrams.
func (n *twins) answerers(t *testing.T, from *exec.Cmd, f family, to string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for range 20 {
		for _, network := range f.networks() {
			server, _, err := ask(t, from, network, to)
			if err != nil {
				t.Fatal(err)
			}
			out[server] = true
		}
	}
	return out
}
