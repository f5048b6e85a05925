// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/reach"
	"github.com/sealane-io/sealane/memberagent/cluster/gateways"
)

// beat renews the Lease of the gateway node-a until the function that it returns is called.
func (m *member) beat() (stop func()) {
	m.t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace,
		Name: v1alpha1.GatewayLeasePrefix + "node-a"}}
	renew := func(ctx context.Context) error {
		err := m.Get(ctx, client.ObjectKeyFromObject(lease), lease)
		lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
		if err != nil {
			return m.Create(ctx, lease)
		}
		return m.Update(ctx, lease)
	}
	m.eventually("the Lease", renew)
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(reach.RenewEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = renew(ctx) // the next one follows
			}
		}
	}()
	return func() { cancel(); <-done }
}

// connection waits until the Peering says so of c2, and returns after what time.
func (m *member) connection(what, want string) time.Duration {
	m.t.Helper()
	return m.within(20*time.Second, what, func(ctx context.Context) error {
		p := &v1alpha1.Peering{}
		if err := m.Get(ctx, client.ObjectKey{Name: v1alpha1.PeeringName}, p); err != nil {
			return err
		}
		return expect("connections", connections(&p.Status), want)
	})
}

// TestAGatewayWhoseAgentIsSilentIsUnknown within 15 s, also for an agent that starts later, until it is heard again.
func TestAGatewayWhoseAgentIsSilentIsUnknown(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.peering(1)
	m.connection("no report yet", "[c2 Unknown NotReported]")
	stop := m.beat()
	m.gatewayReports(v1alpha1.ConnectionConnected)
	m.connection("connected", "[c2 Connected ]")
	unmarked := func(ctx context.Context) error {
		g := &v1alpha1.Gateway{}
		err := m.Get(ctx, client.ObjectKey{Name: "node-a"}, g)
		return errors.Join(err, expect("silent since", g.Status.SilentSince, (*metav1.Time)(nil)))
	}
	start := time.Now()
	for time.Since(start) < reach.SilentAfter+reach.SilentConfirm+reach.RenewEvery {
		if err := unmarked(t.Context()); err != nil {
			t.Fatalf("an agent that renews its Lease: %v", err)
		}
		<-time.After(100 * time.Millisecond)
	}

	stop()
	took := m.connection("silent", "[c2 Unknown AgentSilent]")
	t.Logf("unknown %v after the last sign of life", took)
	if took > 15*time.Second {
		t.Errorf("unknown after %v, want 15 s at most", took)
	}
	m.stop()
	m.start(m.config)
	version := m.peeringVersion()
	<-time.After(3 * time.Second)
	m.connection("still silent when the agent has restarted", "[c2 Unknown AgentSilent]")
	if after := m.peeringVersion(); after != version {
		t.Errorf("the restart wrote the Peering: %s, was %s", after, version)
	}

	defer m.beat()()
	t.Logf("connected %v after the first sign of life", m.connection("heard again", "[c2 Connected ]"))
	m.eventually("the mark is gone", unmarked)
	m.tells("Gateway", "default", "node-a", "Warning "+gateways.EventSilent, "Normal "+gateways.EventHeard)
}

func (m *member) peeringVersion() string {
	m.t.Helper()
	p := &v1alpha1.Peering{}
	if err := m.Get(m.t.Context(), client.ObjectKey{Name: v1alpha1.PeeringName}, p); err != nil {
		m.t.Fatal(err)
	}
	return p.ResourceVersion
}
