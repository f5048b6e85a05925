// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
)

// TestAClusterUnjoinedWithoutLeaving: Karmada forgets it, its nodes clean themselves, the others release it, and
// joined to Karmada again it is a member again.
func TestAClusterUnjoinedWithoutLeaving(t *testing.T) {
	l := shared.Lab
	unjoin := exec.CommandContext(t.Context(), l.Tool("karmadactl"), "unjoin", "c1", "--kubeconfig="+l.Kubeconfig(),
		"--karmada-context=karmada", "--cluster-kubeconfig="+l.Kubeconfig(), "--cluster-context=c1")
	if out, err := unjoin.CombinedOutput(); err != nil {
		t.Fatalf("unjoin c1: %v: %s", err, out)
	}
	clean(t, "c1")
	eventually(t, 10*time.Second, func(ctx context.Context) error {
		out, err := l.InNode(ctx, "c2-worker", "ip", "route", "show", "table", "all")
		if err == nil && strings.Contains(string(out), "10.8.") {
			err = fmt.Errorf("c2 still routes to c1: %s", out)
		}
		return err
	})
	// Made before there is such a cluster, it waits.
	waiting := newSite(t, lab.ContextKarmada)
	waiting.spread("c1")
	// Unjoining removes a namespace from the member, which takes a moment to go.
	eventually(t, 2*time.Minute, func(ctx context.Context) error {
		_, err := lab.Up(ctx, lab.Options{Name: l.Dir, Topology: l.Topology})
		return err
	})
	if err := shared.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	waiting.sources("c2", map[string]int{"c1": 2})
	shares(t, "c2", "http://"+waiting.name(), 10, "c1")
	exported(t, "c2", "whereami-cs")
	answeredBy(t, "c1", "client-c1-worker", whereami, "c2")
}
