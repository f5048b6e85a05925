// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
)

// TestUninstallLeavesNothing runs last of all: no object, link, route, rule or table of Sealane's stays.
func TestUninstallLeavesNothing(t *testing.T) {
	plugin(t, "uninstall")
	for _, c := range shared.Lab.Topology.Clusters {
		clean(t, c.Name)
	}
	for _, cluster := range shared.Lab.Contexts() {
		for _, list := range [][]string{
			{"get", "crds", "-o", "name"},
			{"get", "namespaces", "-o", "name"},
			{"get", "clusterroles,clusterrolebindings", "-o", "name"},
		} {
			// A namespace takes its pods' grace period to go.
			eventually(t, time.Minute, func(ctx context.Context) error {
				out, err := try(ctx, append([]string{"--context", cluster}, list...)...)
				for line := range strings.SplitSeq(out, "\n") {
					if strings.Contains(line, "sealane") {
						err = errors.Join(err, fmt.Errorf("%s: left over: %s", cluster, line))
					}
				}
				return err
			})
		}
		if out := kubectl(t, "--context", cluster, "get", "services", "-A", "-l", "app.kubernetes.io/managed-by=sealane.io", "-o", "name"); out != "" {
			t.Errorf("%s: Services left over: %s", cluster, out)
		}
	}
	for _, c := range shared.Lab.Topology.Clusters {
		if corefile := kubectl(t, "--context", c.Name, "-n", "kube-system", "get", "configmap", "coredns", "-o", "yaml"); strings.Contains(corefile, "sealane") {
			t.Errorf("%s: the Corefile still mentions Sealane:\n%s", c.Name, corefile)
		}
	}
}

// TestTheControllerRunsAsADeployment comes after the uninstall: c1 hosts Karmada's controllers, as far as Sealane
// can tell, and the controller has no more rights on the Karmada API than its identity was given.
func TestTheControllerRunsAsADeployment(t *testing.T) {
	if err := shared.Lab.StopProcess(t.Context(), "sealane-controller"); err != nil {
		t.Fatal(err)
	}
	plugin(t, "install", "--host-context=c1", "--controller-image="+lab.ImageController,
		"--agent-image="+lab.ImageAgent, "--dns-image="+lab.ImageDNS)
	exported(t, "c2", "whereami-cs")
	answeredBy(t, "c1", "client-c1-worker", whereami, "c2")
	if out := plugin(t, "show", "versions", "--host-context=c1"); !strings.Contains(out, "controller") {
		t.Errorf("expected the controller's version in\n%s", out)
	}
	for _, denied := range [][]string{{"get", "secrets", "-A"}, {"create", "clusterrolebindings"}, {"get", "pods", "-A"}} {
		out, err := try(t.Context(), append([]string{"--context", "karmada", "auth", "can-i", "--as=system:serviceaccount:sealane-system:sealane-controller"}, denied...)...)
		if err == nil {
			t.Errorf("the controller may %v on the Karmada API: %s", denied, out)
		}
	}
}
