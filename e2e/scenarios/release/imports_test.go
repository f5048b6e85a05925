// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/e2e/suite"
)

// imported exports web from c2, and waits until c1 has its endpoint.
func imported(t *testing.T) suite.Namespace {
	t.Helper()
	s := suite.NewNamespace(t)
	s.Serve("c2")
	s.Export("c2")
	s.WaitEndpoints("c1", map[string]int{"c2": 1})
	return s
}

// stays looks all the time whether c1 has web's import with its endpoint, until what it returns is called: that says
// how often it looked, and fails the test if the import was away or empty. An API server that does not answer does not
// count.
func stays(t *testing.T, s suite.Namespace, what string) (end func()) {
	t.Helper()
	const every = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	looked, ended := 0, make(chan struct{})
	go func() {
		defer close(ended)
		a := s.API("c1")
		for tick := time.NewTicker(every); ctx.Err() == nil; <-tick.C {
			slices, err := s.Slices(ctx, "c1")
			if err != nil {
				continue
			}
			looked++
			endpoints := 0
			for _, slice := range slices {
				if slice.Labels[mcs.LabelSourceCluster] == "c2" {
					endpoints += len(slice.Endpoints)
				}
			}
			if endpoints != 1 {
				t.Errorf("%s: web's import has %d endpoints at %s", what, endpoints, time.Now().Format(time.StampMilli))
			}
			i := &mcs.ServiceImport{ObjectMeta: suite.Named("web")}
			i.Namespace = s.Name
			switch err := a.Get(ctx, client.ObjectKeyFromObject(i), i); {
			case err == nil && len(i.Status.Clusters) != 1:
				t.Errorf("%s: web's ServiceImport has clusters %v", what, i.Status.Clusters)
			case apierrors.IsNotFound(err):
				t.Errorf("%s: web's ServiceImport is away", what)
			}
		}
	}()
	return func() {
		cancel()
		<-ended
		if t.Logf("%s: looked %d times at web's import", what, looked); looked < 100 {
			t.Errorf("%s: looked %d times at web's import, which is too few to see it go", what, looked)
		}
	}
}
