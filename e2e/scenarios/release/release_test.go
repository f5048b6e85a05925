// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net/netip"
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

// TestVersionsFromARegistry: a release is pushed into a registry that asks for credentials, and installed from there by
// digest, on nodes that have no image of it and pull by a Secret. A digest that the registry lacks is named by install
// as soon as the kubelet knows, and so are credentials that are wrong. Then the next version follows under traffic
// between the clusters, and gives way to the first again; none of many imports goes meanwhile, and those that change
// arrive.
func TestVersionsFromARegistry(t *testing.T) {
	nodesHaveNoImages(t)
	before, present := trees(t)
	first, next := newBuild(t, before, "v0.1.0"), newBuild(t, present, "v0.2.0")
	r := newRegistry(t)
	r.push(t, first)
	r.push(t, next)
	uninstallAfter(t, next)
	install := []string{"install", onHost, "--controller-image=" + first.refs["controller"],
		"--dns-image=" + first.refs["dns"], "--image-pull-secret=" + secretName}
	r.letPull(t, "c1", "sealane-controller", password)
	// By this tree's command, which the one of before follows only as nothing runs yet.
	lacking := r.path() + "/agent@sha256:" + strings.Repeat("0", 64)
	r.letMembersPull(t, password)
	namesImage(t, next, lacking, "not found", append(install, "--agent-image="+lacking)...)
	r.letMembersPull(t, "mistyped")
	namesImage(t, next, first.refs["agent"], "401 Unauthorized", append(install, "--agent-image="+first.refs["agent"])...)
	r.letMembersPull(t, password)
	first.succeeds(t, append(install, "--agent-image="+first.refs["agent"])...)
	pulled(t, r, first)

	suite.Contains(t, next.succeeds(t, "upgrade", onHost, "--check"), first.refs["agent"], r.path()+"/agent:v0.2.0")
	pulled(t, r, first) // as before: that has changed nothing
	web, often, all := imported(t), change(t), crowd(t)
	underTraffic(t, "upgrade", func() {
		defer stays(t, web, "upgrade")()
		defer crowdStays(t, all, "upgrade")()
		inOrder(t, next.succeeds(t, "upgrade", onHost),
			"controller: runs and leads", "c1: has its agents", "c2: has its agents", "upgraded to v0.2.0")
	})
	allOf(t, next, r.path()+"/agent:v0.2.0")
	often.inDeltas()
	underTraffic(t, "roll-back", func() {
		defer stays(t, web, "roll-back")()
		defer crowdStays(t, all, "roll-back")()
		inOrder(t, next.succeeds(t, "upgrade", onHost, "--rollback"),
			"c1: has its agents", "c2: has its agents", "controller: runs and leads", "back at "+first.refs["agent"])
	})
	allOf(t, first, first.refs["agent"])
	often.arrived()
	pulled(t, r, first)
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

// namesImage expects an install that waits for an image which cannot be pulled to name it for every member, and why, as
// soon as the kubelet knows.
func namesImage(t *testing.T, b *build, image, why string, args ...string) {
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
			_, cause, found := strings.Cut(lines.Text(), image+" cannot be pulled: ")
			if found && strings.Contains(lines.Text(), "] "+c+": ") && strings.Contains(cause, why) {
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

// underTraffic changes versions while pods of the clusters talk and nodes send to a pod that the tunnel leads to: no
// connection ends, no flow is silent for longer than a restart of an agent costs, and nothing leaves in clear.
func underTraffic(t *testing.T, what string, change func()) {
	t.Helper()
	server := suite.PodIP(t, "c2", "server-c2-gw")
	network := suite.PodNetworkOf("c2", netip.MustParseAddr(server))
	captures := suite.SendMarked(t, []string{"c1-gw", "c1-worker"}, netip.MustParseAddr(server), suite.Foreign.Addr())
	between := suite.StartTraffic(t, "c1", "c1-worker", server+":8080")
	within := suite.StartTraffic(t, "c1", "c1-worker", suite.PodIP(t, "c1", "server-c1-worker")+":8080")
	change()
	flows, control := between(), within()
	t.Logf("%s: between the clusters %+v", what, flows)
	t.Logf("%s: within a node %+v", what, control)
	if flows.Resets > 0 || flows.Failed > control.Failed {
		t.Errorf("%s: %d connections ended and %d could not be opened", what, flows.Resets, flows.Failed)
	}
	for kind, of := range map[string][2]time.Duration{
		"a TCP connection": {flows.Silence, control.Silence}, "datagrams": {flows.DatagramSilence, control.DatagramSilence},
	} {
		if of[0] > suite.Undisturbed+of[1] {
			t.Errorf("%s: %s were silent for %s, expected at most %s beyond the %s within the node", what, kind, of[0],
				suite.Undisturbed, of[1])
		}
	}
	for node, c := range captures {
		if links := c.Sent(network); len(links) > 0 {
			t.Errorf("%s: %d packets to %s left %s in clear by %v", what, len(links), network, node, slices.Compact(links))
		}
		if len(c.Sent(suite.Foreign)) == 0 {
			t.Errorf("%s: %s: the capture has not seen what may leave", what, node)
		}
	}
}

// inOrder expects texts one after the other.
func inOrder(t *testing.T, out string, texts ...string) {
	t.Helper()
	rest := out
	for _, text := range texts {
		_, after, found := strings.Cut(rest, text)
		if !found {
			t.Errorf("expected %q in this order, found none of %q in time in\n%s", texts, text, out)
			return
		}
		rest = after
	}
}

// allOf expects every part to be of a version, as its own command sees it, and the members to be as they should be.
func allOf(t *testing.T, b *build, agent string) {
	t.Helper()
	b.succeeds(t, "status", "--wait=rolled-out")
	versions := b.succeeds(t, "show", "versions", "-o", "wide", onHost)
	for line := range strings.Lines(versions) {
		// The version of a controller is that of its image's tag, which one by digest has not.
		byDigest := strings.HasPrefix(line, "controller") && strings.Contains(line, b.refs["controller"])
		if !strings.HasPrefix(line, "COMPONENT") && !strings.Contains(line, b.version) && !byDigest {
			t.Errorf("expected all to be of %s, found %s", b.version, line)
		}
	}
	if n := strings.Count(versions, agent); n != 4 {
		t.Errorf("expected two cluster agents and two gateways of %s, found %d in\n%s", agent, n, versions)
	}
}
