// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/cable"
	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/memberagent/node"
)

// TestPlannedIsAskedOfTheLoop: one that does not run answers nobody, one that runs says what has failed.
func TestPlannedIsAskedOfTheLoop(t *testing.T) {
	keys, _, err := cable.OpenKeys(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := cable.OpenWireGuard(keys, cable.NewHolder(logr.Discard()))
	if err != nil {
		t.Fatal(err)
	}
	k, err := kernel.New(map[string]kernel.Driver{string(v1alpha1.CableWireGuard): c}, "/proc/sys/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	metrics, err := node.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	a, err := node.New(node.Options{Node: "n1", Keys: keys, Version: "test", StateDir: t.TempDir()}, k, metrics)
	if err != nil {
		t.Fatal(err)
	}
	cluster := &rehearsing{directory: directory(t.TempDir())}
	a.SetCluster(cluster)
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if p, err := a.Planned(soon); err == nil || !strings.Contains(err.Error(), "has not begun") {
		t.Errorf("before it runs: %+v, %v", p, err)
	}
	p := &v1alpha1.Peering{}
	p.Spec.ClusterID, p.Spec.Cable.Driver = "c1", "carrier-pigeon"
	cluster.set(node.Objects{Peering: p}, nil)
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	defer func() {
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	eventually(t, 10*time.Second, "it says what has failed", func() bool {
		got, err := a.Planned(t.Context())
		return err == nil && strings.Contains(got.Problem, "carrier-pigeon") && len(got.Holds) == 0 && len(got.Changes) == 0
	})
}
