// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/suite"
)

// soon is how long install may take to name what a kubelet knows.
const soon = 5 * time.Second

// onHost names the cluster that stands for the one that hosts Karmada.
const onHost = "--host-context=c1"

// TestInstallFromARegistry: a release is pushed into a registry and installed from there by digest, on nodes that have
// no image of it. A digest that the registry lacks is named by install as soon as the kubelet knows.
func TestInstallFromARegistry(t *testing.T) {
	nodesHaveNoImages(t)
	root, err := lab.SourceRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, r := newBuild(t, root, "v0.1.0"), newRegistry(t)
	r.push(t, b)
	uninstallAfter(t, b)
	install := []string{"install", onHost, "--controller-image=" + b.refs["controller"], "--dns-image=" + b.refs["dns"]}
	lacking := r.path() + "/agent@sha256:" + strings.Repeat("0", 64)
	namesImage(t, b, lacking, append(install, "--agent-image="+lacking)...)
	b.succeeds(t, append(install, "--agent-image="+b.refs["agent"])...)
	pulled(t, r, b)
}

// uninstallAfter removes what the test installs.
func uninstallAfter(t *testing.T, b *build) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
		defer cancel()
		if _, err := b.run(ctx, "uninstall", onHost); err != nil {
			t.Error(err)
		}
	})
}

// nodesHaveNoImages of Sealane.
func nodesHaveNoImages(t *testing.T) {
	t.Helper()
	for _, c := range suite.Lab().Topology.Clusters {
		for _, node := range c.Nodes {
			out, err := suite.Lab().InNode(t.Context(), node.Name, "ctr", "--address=/run/containerd/containerd.sock",
				"--namespace=k8s.io", "images", "ls", "-q")
			found := regexp.MustCompile(`(?m)^.*sealane/(agent|controller|dns)[:@].*$`).FindString(string(out))
			if err != nil || found != "" || !strings.Contains(string(out), lab.ImageClient) {
				t.Fatalf("%s: expected images of the lab and none of Sealane, found %q, %v", node.Name, out, err)
			}
		}
	}
}

// namesImage expects an install that waits for an image which cannot be pulled to name it for every member, as soon as
// the kubelet knows.
func namesImage(t *testing.T, b *build, image string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.plugin, append(args, "--kubeconfig="+suite.Lab().Kubeconfig(),
		"--karmada-context="+lab.ContextKarmada)...)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	named, known := map[string]time.Duration{}, make(chan map[string]time.Duration, 1)
	go func() { known <- kubeletsKnow(ctx, image, began) }()
	var said []string
	for lines := bufio.NewScanner(out); len(named) < len(suite.Members()) && lines.Scan(); {
		said = append(said, lines.Text())
		for _, c := range suite.Members() {
			if strings.Contains(lines.Text(), "] "+c+": ") && strings.Contains(lines.Text(), image+" cannot be pulled: ") {
				named[c] = time.Since(began)
			}
		}
	}
	kubelet := <-known
	for _, c := range suite.Members() {
		t.Logf("%s: the kubelet knows after %s, install says so after %s", c, kubelet[c], named[c])
		if named[c] == 0 || kubelet[c] == 0 || named[c] > kubelet[c]+soon {
			t.Errorf("%s: install names %s after %s, %s expected; it said:\n%s", c, image, named[c], kubelet[c]+soon,
				strings.Join(said, "\n"))
		}
	}
}

// kubeletsKnow returns for each cluster after how long a kubelet had said that it cannot pull an image.
func kubeletsKnow(ctx context.Context, image string, began time.Time) map[string]time.Duration {
	known := map[string]time.Duration{}
	for tick := time.NewTicker(100 * time.Millisecond); ctx.Err() == nil && len(known) < len(suite.Members()); <-tick.C {
		for _, c := range suite.Members() {
			out, err := suite.JSONPath(ctx, c, "{.items[*].status.containerStatuses[*].state.waiting.message}", "pods", "-n",
				v1alpha1.Namespace)
			if err == nil && known[c] == 0 && strings.Contains(out, image) {
				known[c] = time.Since(began)
			}
		}
	}
	return known
}

// pulled waits until every container of Sealane is of the images of a build, which its node has pulled by their digests
// from the registry.
func pulled(t *testing.T, r *imageRegistry, b *build) {
	t.Helper()
	for _, c := range suite.Members() {
		a, err := suite.API(c)
		if err != nil {
			t.Fatal(err)
		}
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			found := map[string]bool{}
			for _, namespace := range []string{v1alpha1.Namespace, "sealane-controller"} {
				var pods corev1.PodList
				if err := a.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
					return err
				}
				for _, pod := range pods.Items {
					node := suite.NodeAddr(pod.Spec.NodeName).String()
					for _, s := range pod.Status.ContainerStatuses {
						if !slices.Contains(slices.Collect(maps.Values(b.refs)), s.ImageID) || !r.gave(node, s.ImageID) {
							return fmt.Errorf("%s: pod %s on %s: expected an image that was pulled by one of %v, found %s",
								c, pod.Name, pod.Spec.NodeName, b.refs, s.ImageID)
						}
						found[s.ImageID] = true
					}
				}
			}
			if want := len(b.refs); len(found) < want && (c == "c1" || len(found) < want-1) {
				return fmt.Errorf("%s: found %v of %v", c, found, b.refs)
			}
			return nil
		})
	}
}
