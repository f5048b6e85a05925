// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/sealane"
)

// kubectl runs kubectl and fails the test if it fails.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := try(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func try(ctx context.Context, args ...string) (string, error) {
	out, err := shared.Lab.Kubectl(ctx, args...)
	return strings.TrimSpace(string(out)), err
}

// in runs the client program in a pod of the namespace sample.
func in(ctx context.Context, cluster, pod string, args ...string) (string, error) {
	a, err := shared.API(cluster)
	if err != nil {
		return "", err
	}
	return a.Exec(ctx, "sample", pod, append([]string{"/client"}, args...)...)
}

// get asks a whereami server from a pod.
func get(ctx context.Context, cluster, pod, url string) (sealane.Answer, error) {
	out, err := in(ctx, cluster, pod, "http", url)
	if err != nil {
		return sealane.Answer{}, err
	}
	return sealane.ParseAnswer([]byte(out))
}

// eventually repeats check until it succeeds, and fails the test with its last error at the deadline. One try
// may take half of the time: a connection that never comes about does not use up all of it.
func eventually(t *testing.T, within time.Duration, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last := fmt.Errorf("not tried")
	for {
		attempt, end := context.WithTimeout(ctx, within/2)
		err := check(attempt)
		end()
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %v", within, last)
		case <-tick.C:
		}
	}
}

// plugin runs a command of the plugin and fails the test if it fails.
func plugin(t *testing.T, args ...string) string {
	t.Helper()
	out, err := shared.Run(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// jsonpath reads a field of an object.
func jsonpath(ctx context.Context, cluster, path string, object ...string) (string, error) {
	return try(ctx, append([]string{"--context", cluster, "get", "-o", "jsonpath=" + path}, object...)...)
}

func podIP(t *testing.T, cluster, pod string) string {
	t.Helper()
	ip, err := jsonpath(t.Context(), cluster, "{.status.podIP}", "pod", pod, "-n", "sample")
	if err != nil {
		t.Fatal(err)
	}
	return ip
}

func clusterIP(t *testing.T, cluster, service string) string {
	t.Helper()
	ip, err := jsonpath(t.Context(), cluster, "{.spec.clusterIP}", "service", service, "-n", "sample")
	if err != nil {
		t.Fatal(err)
	}
	return ip
}

// answeredBy asks by name until the cluster answers and, being another than the one that asks, sees a client
// inside that one's pod network. Within a cluster the CNI may masquerade, as it does in c1.
func answeredBy(t *testing.T, from, pod, name, want string) {
	t.Helper()
	eventually(t, 30*time.Second, func(ctx context.Context) error {
		a, err := get(ctx, from, pod, "http://"+name)
		if err != nil {
			return err
		}
		if a.Cluster != want {
			return fmt.Errorf("%s answered by %q, expected %q", name, a.Cluster, want)
		}
		if from != want && !inPodNetwork(from, a.Client) {
			return fmt.Errorf("the server saw client %s, expected a pod address of %s", a.Client, from)
		}
		return nil
	})
}

func inPodNetwork(cluster, ip string) bool {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return false
	}
	for _, c := range shared.Lab.Topology.Clusters {
		for _, cidr := range c.PodCIDRs {
			if c.Name == cluster && netip.MustParsePrefix(cidr).Contains(addr) {
				return true
			}
		}
	}
	return false
}

// exported makes a member export the service for the length of the test.
func exported(t *testing.T, cluster, service string, flags ...string) {
	t.Helper()
	plugin(t, append([]string{"export", service, "-n", "sample", "--context", cluster}, flags...)...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := shared.Run(ctx, "unexport", service, "-n", "sample", "--context", cluster); err != nil {
			t.Error(err)
		}
	})
}
