// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestAMemberLeavesAndJoinsAgain: its nodes end clean, the other releases it, and it comes back.
func TestAMemberLeavesAndJoinsAgain(t *testing.T) {
	suite.RestoreAfter(t, []string{"join", "c2"})
	suite.Plugin(t, "leave", "c2")
	suite.NodesClean(t, "c2")
	waiting := suite.NewKarmadaNamespace(t)
	waiting.Spread("c2")
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		out, err := suite.Lab().InNode(ctx, "c1-worker", "ip", "route", "show", "table", "all")
		if err == nil && strings.Contains(string(out), "10.9.") {
			err = fmt.Errorf("c1 still routes to c2: %s", out)
		}
		return err
	})
	suite.Plugin(t, "join", "c2")
	// What was exported while it was away arrives.
	waiting.WaitEndpoints("c1", map[string]int{"c2": 2})
	suite.AnsweredByAll(t, "c1", "http://"+waiting.DNSName(), 10, "c2")
	server, client := suite.PodIP(t, "c2", "server-c2-worker"), suite.PodIP(t, "c1", "client-c1-worker")
	suite.CheckHTTP(t, "c1", "client-c1-worker", server+":8080", "server-c2-worker", client)
}

// TestAClusterUnjoinedWithoutLeaving: Karmada forgets it, its nodes clean themselves, the others release it, and
// joined to Karmada again it is a member again.
func TestAClusterUnjoinedWithoutLeaving(t *testing.T) {
	suite.Long(t)
	suite.RestoreAfter(t)
	l := suite.Lab()
	unjoin := exec.CommandContext(t.Context(), l.Tool("karmadactl"), "unjoin", "c1", "--kubeconfig="+l.Kubeconfig(),
		"--karmada-context=karmada", "--cluster-kubeconfig="+l.Kubeconfig(), "--cluster-context=c1")
	if out, err := unjoin.CombinedOutput(); err != nil {
		t.Fatalf("unjoin c1: %v: %s", err, out)
	}
	suite.NodesClean(t, "c1")
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		out, err := l.InNode(ctx, "c2-worker", "ip", "route", "show", "table", "all")
		if err == nil && strings.Contains(string(out), "10.8.") {
			err = fmt.Errorf("c2 still routes to c1: %s", out)
		}
		return err
	})
	// Created before Karmada knows the cluster, it is propagated as soon as it does.
	waiting := suite.NewNamespace(t, lab.ContextKarmada)
	waiting.Spread("c1")
	// Unjoining deletes a namespace in the member, and joining fails until that is gone.
	suite.Eventually(t, suite.Patience, func(context.Context) error {
		//nolint:contextcheck // it has the context of the test
		_, err := lab.Up(t.Context(), lab.Options{Name: l.Dir, Topology: l.Topology})
		return err
	})
	if err := suite.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	waiting.WaitEndpoints("c2", map[string]int{"c1": 2})
	suite.AnsweredByAll(t, "c2", "http://"+waiting.DNSName(), 10, "c1")
	suite.Exported(t, "c2", "whereami-cs")
	suite.AnsweredBy(t, "c1", "client-c1-worker", suite.Whereami, "c2")
}
