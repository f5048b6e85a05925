// SPDX-License-Identifier: Apache-2.0

package transitions_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sealane-io/sealane/internal/apiserver"
	"github.com/sealane-io/sealane/internal/transitions"
)

// TestManyEventsAreWrittenInPace: who makes them does not wait, and the API server gets so many a second.
func TestManyEventsAreWrittenInPace(t *testing.T) {
	config := apiserver.Start(t)
	m, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	events, err := transitions.Recorder(m, "test")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	const many = 600
	begun := time.Now()
	for i := range many {
		about := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("c%d", i)}}
		transitions.Say(events, about, corev1.EventTypeNormal, "Served", "connections go to c2")
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("making %d events took %s", many, took)
	}
	for {
		list := &corev1.EventList{}
		if err := m.GetAPIReader().List(ctx, list, client.InNamespace("default")); err != nil {
			t.Fatal(err)
		}
		pace := 50 + 20*(time.Since(begun).Seconds()+1)
		n := len(list.Items)
		if float64(n) > pace {
			t.Fatalf("%d events after %s, at most %.0f are in pace", n, time.Since(begun), pace)
		}
		if n > 70 {
			return
		}
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("%d events after %s", n, time.Since(begun))
		}
		time.Sleep(100 * time.Millisecond)
	}
}
