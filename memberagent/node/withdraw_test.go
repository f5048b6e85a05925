// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestAGatewayCarriesOnUntilItIsFoundGone(t *testing.T) {
	for _, c := range []struct {
		name     string
		check    v1alpha1.HealthCheckSpec
		expected time.Duration
	}{
		{"without a health check", v1alpha1.HealthCheckSpec{}, 1500 * time.Millisecond},
		{"as by default", v1alpha1.HealthCheckSpec{IntervalMilliseconds: 50, FailureThreshold: 3}, 1500 * time.Millisecond},
		{"no sooner than that", v1alpha1.HealthCheckSpec{IntervalMilliseconds: 50, FailureThreshold: 1},
			1500 * time.Millisecond},
		{"more probes", v1alpha1.HealthCheckSpec{IntervalMilliseconds: 50, FailureThreshold: 20}, 2350 * time.Millisecond},
		{"rarer probes", v1alpha1.HealthCheckSpec{IntervalMilliseconds: 500, FailureThreshold: 3}, 3300 * time.Millisecond},
		{"rarer than those of idle paths", v1alpha1.HealthCheckSpec{IntervalMilliseconds: 2000, FailureThreshold: 3},
			10300 * time.Millisecond},
		{"ten seconds in many probes", v1alpha1.HealthCheckSpec{IntervalMilliseconds: 100, FailureThreshold: 100},
			11400 * time.Millisecond},
		{"ten seconds in one probe", v1alpha1.HealthCheckSpec{IntervalMilliseconds: 10000, FailureThreshold: 1},
			withdrawMost},
		{"what the API refuses", v1alpha1.HealthCheckSpec{IntervalMilliseconds: 60000, FailureThreshold: 100}, withdrawMost},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := (&Agent{healthCheck: c.check}).carryOn(); got != c.expected {
				t.Errorf("carries on for %s, want %s", got, c.expected)
			}
		})
	}
}

// TestWhoIsWithdrawnIsFoundDeadInTime: probes of an idle path, the last of which was answered just before the gateway
// withdrew, find it dead while it carries on, and a moment is left to change routes.
func TestWhoIsWithdrawnIsFoundDeadInTime(t *testing.T) {
	const trip = 5 * time.Millisecond
	for _, c := range []struct {
		interval  time.Duration
		threshold int
	}{
		{50 * time.Millisecond, 1}, {50 * time.Millisecond, 3}, {50 * time.Millisecond, 100}, {200 * time.Millisecond, 50},
		{500 * time.Millisecond, 3}, {time.Second, 10}, {2 * time.Second, 5}, {3300 * time.Millisecond, 3},
		{6 * time.Second, 1},
	} {
		now := time.Unix(1000, 0)
		p := &Prober{changed: func() {}, tick: c.interval, threshold: c.threshold, series: map[netip.Addr]*probed{}}
		s := &probed{series: newSeries(), ipv4: true, interval: max(idleInterval, c.interval)}
		round := func() (probed bool) {
			now = now.Add(c.interval)
			packets, _ := p.next(s, now, c.interval, c.threshold)
			return len(packets) > 0
		}
		for probed := false; s.live != alive || !probed; {
			if probed = round(); probed {
				s.answered(s.sequence, now.Add(trip), c.threshold)
			}
		}
		withdrawn := now.Add(trip)
		for s.live == alive {
			round()
		}
		found, left := now.Sub(withdrawn), carryOnFor(c.interval, c.threshold)
		if found > left-turning/2 {
			t.Errorf("%d probes every %s: found dead after %s, carried on for %s", c.threshold, c.interval, found, left)
		}
	}
}

// TestPodsEndAfterTheirGatewaysHaveCarriedOn: the kubelet kills none before.
func TestPodsEndAfterTheirGatewaysHaveCarriedOn(t *testing.T) {
	text, err := os.ReadFile("../../artifacts/deploy/node.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var set appsv1.DaemonSet
		if err := yaml.Unmarshal([]byte(document), &set); err != nil || set.Kind != "DaemonSet" {
			continue
		}
		found++
		grace := time.Duration(*set.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
		if least := withdrawMost + askTimeout + cleanTimeout; grace <= least {
			t.Errorf("%s has %s to end, and may need %s", set.Name, grace, least)
		}
	}
	if found == 0 {
		t.Error("no DaemonSet found")
	}
}
