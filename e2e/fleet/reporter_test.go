// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"testing"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestReportsHaveALimit: of the reports that are to be written some wait for their turn, and what there is to be said
// then is. One that says nothing new takes no turn.
func TestReportsHaveALimit(t *testing.T) {
	var patches int
	r := newReporter(interceptor.NewClient(fake.NewFakeClient(), interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch,
			...client.SubResourcePatchOption) error {
			patches++
			return nil
		},
	}), 10)
	var said []byte
	report := func(what string) {
		t.Helper()
		var err error
		said, err = r.report(t.Context(), client.ObjectKey{Name: "work"}, workv1alpha1.ResourceIdentifier{}, said,
			func(context.Context) ([]byte, error) { return []byte(what), nil })
		if err != nil || string(said) != what {
			t.Fatalf("said %q, %v, want %q", said, err, what)
		}
	}
	begun := time.Now()
	for n := range 25 {
		report(fmt.Sprintf(`{"n":%d}`, n))
		report(fmt.Sprintf(`{"n":%d}`, n))
	}
	// Fifteen at once, and ten more each second.
	if took := time.Since(begun); patches != 25 || took < 900*time.Millisecond {
		t.Errorf("%d reports of 25 were written in %s, want at least a second", patches, took)
	}

	for range workers {
		r.workers <- struct{}{}
	}
	asked, written := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		said, _ = r.report(context.Background(), client.ObjectKey{Name: "work"}, workv1alpha1.ResourceIdentifier{}, said,
			func(context.Context) ([]byte, error) {
				close(asked)
				return []byte(`{"n":26}`), nil
			})
	}()
	select {
	case <-asked:
		t.Error("it is asked what there is to be said, and there is no worker to say it")
	case <-time.After(50 * time.Millisecond):
	}
	<-r.workers
	<-written
	if string(said) != `{"n":26}` {
		t.Errorf("said %s", said)
	}
}
