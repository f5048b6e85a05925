// SPDX-License-Identifier: Apache-2.0

package transitions

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Events are written at this rate, in requests a second: a cluster that is lost is a transition of each of its
// thousand services, and the EndpointSlices by which connections go elsewhere must not wait for what is said of it.
const (
	eventsPerSecond = 20
	burst           = 50
)

// Recorder makes Events in the name of a component, for as long as the manager runs. Who makes one never waits; what
// is more than a thousand ahead of the writing is dropped.
func Recorder(m ctrl.Manager, component string) (record.EventRecorder, error) {
	config := rest.CopyConfig(m.GetConfig())
	config.QPS, config.Burst, config.RateLimiter = eventsPerSecond, burst, nil
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for events: %w", err)
	}
	all := record.NewBroadcaster()
	all.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: core.Events("")})
	if err := m.Add(ends(all.Shutdown)); err != nil {
		return nil, fmt.Errorf("add the recorder of events: %w", err)
	}
	return all.NewRecorder(m.GetScheme(), corev1.EventSource{Component: component}), nil
}

// ends is called when the manager ends, of whoever leads.
type ends func()

// Start implements manager.Runnable.
func (e ends) Start(ctx context.Context) error {
	<-ctx.Done()
	e()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (e ends) NeedLeaderElection() bool { return false }
