// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, workv1alpha1.Install, metav1.AddMetaToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func of(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) client.Client {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
}

func meta(name string, version int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: strconv.Itoa(version)}
}

func member(name string, version int) client.Object {
	return &v1alpha1.Member{ObjectMeta: meta(name, version)}
}

func record(name string, version int) client.Object {
	return &v1alpha1.ExportRecord{ObjectMeta: meta(name, version)}
}

func work(name string, version int, manager string) client.Object {
	w := &workv1alpha1.Work{ObjectMeta: meta(name, version)}
	w.Namespace, w.Labels = "karmada-es-c1", map[string]string{propagation.LabelManagedBy: manager}
	return w
}

// TestItWaitsForWhatWasWritten: a controller begins when its caches show all that the API server has, as it was or as
// it has become, and not before.
func TestItWaitsForWhatWasWritten(t *testing.T) {
	there := []client.Object{member("c1", 107), member("c2", 98), record("c1-0", 109),
		work("own", 110, v1alpha1.ManagedBy), work("foreign", 111, "someone")}
	for name, c := range map[string]struct {
		cached []client.Object
		left   []string
	}{
		"nothing": {nil, []string{"c1", "c1-0", "c2", "own"}},
		"an old list": {[]client.Object{member("c1", 99), member("c2", 98), work("own", 109, v1alpha1.ManagedBy)},
			[]string{"c1", "c1-0", "own"}},
		"all but one": {there[:3], []string{"own"}},
		"all":         {there[:4], nil},
		"what has changed since": {[]client.Object{member("c1", 200), member("c2", 98), record("c1-0", 109),
			work("own", 1000, v1alpha1.ManagedBy)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			caches := &Caches{Client: of(t, interceptor.Funcs{}, c.cached...), Live: of(t, interceptor.Funcs{}, there...)}
			all, err := caches.list(t.Context())
			if err != nil || len(all) != 4 {
				t.Fatalf("%d objects are listed, want 4, %v", len(all), err)
			}
			behind, err := caches.behind(t.Context(), all)
			if err != nil {
				t.Fatal(err)
			}
			var left []string
			for _, o := range behind {
				left = append(left, o.key.Name)
			}
			if slices.Sort(left); !slices.Equal(left, c.left) {
				t.Errorf("behind are %v, want %v", left, c.left)
			}
		})
	}
}

// TestItBeginsWhenCachesShowIt, and asks no more than once for all controllers.
func TestItBeginsWhenCachesShowIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lists atomic.Int32
		live := of(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			opts ...client.ListOption) error {
			lists.Add(1)
			return c.List(ctx, list, opts...)
		}}, member("c1", 2))
		caches := &Caches{Client: of(t, interceptor.Funcs{}), Live: live}
		begin, ended := time.Now(), make(chan error, 1)
		go func() { ended <- Shown[ctrl.Request](caches).WaitForSync(t.Context()) }()
		time.Sleep(time.Second)
		if len(ended) > 0 {
			t.Fatal("it begins though the cache shows nothing")
		}
		shows := &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
		if err := caches.Client.Create(t.Context(), shows); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if len(ended) > 0 {
			t.Fatalf("it begins though the cache shows version %s", shows.ResourceVersion)
		}
		if err := caches.Client.Update(t.Context(), shows); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := Shown[string](caches).WaitForSync(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("it took %s", took)
		}
		if n := lists.Load(); int(n) != len(kinds()) {
			t.Errorf("%d lists, want one of each kind, %d", n, len(kinds()))
		}
	})
}

// TestWhatIsDeletedMeanwhileIsNotWaitedFor, as no cache is to show it.
func TestWhatIsDeletedMeanwhileIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := member("c1", 107)
		caches := &Caches{Client: of(t, interceptor.Funcs{}), Live: of(t, interceptor.Funcs{}, gone)}
		begin := time.Now()
		time.AfterFunc(time.Second, func() { _ = caches.Live.(client.Client).Delete(context.Background(), gone) })
		if err := caches.catchUp(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < time.Second || took > 2*listAnew {
			t.Errorf("it took %s", took)
		}
	})
}

// TestACacheThatDoesNotCatchUp is not waited for any longer than any write is.
func TestACacheThatDoesNotCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caches := &Caches{Client: of(t, interceptor.Funcs{}), Live: of(t, interceptor.Funcs{}, member("c1", 107))}
		begin := time.Now()
		if err := caches.catchUp(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < propagation.MaxCacheLag || took > 2*propagation.MaxCacheLag {
			t.Errorf("it took %s", took)
		}
	})
}

// TestItDoesNotBeginUnknowing: where the API server does not say what there is, it is asked until it does.
func TestItDoesNotBeginUnknowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answers atomic.Bool
		live := of(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			opts ...client.ListOption) error {
			if !answers.Load() {
				return errors.New("refused")
			}
			return c.List(ctx, list, opts...)
		}})
		caches := &Caches{Client: of(t, interceptor.Funcs{}), Live: live}
		short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := caches.catchUp(short); err == nil {
			t.Error("it begins, though nothing is known")
		}
		begin := time.Now()
		time.AfterFunc(5*time.Second, func() { answers.Store(true) })
		if err := caches.catchUp(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < 5*time.Second || took > 5*time.Second+2*askAgain {
			t.Errorf("it took %s", took)
		}
	})
}

// TestItPausesBetweenQuestions: an API server that takes its time to refuse is asked no more often for that.
func TestItPausesBetweenQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 10 * askAgain
		var last time.Time
		asked := 0
		live := of(t, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList,
			...client.ListOption) error {
			if since := time.Since(last); asked > 0 && since < askAgain {
				t.Errorf("it is asked again %s after it has answered", since)
			}
			time.Sleep(each)
			asked, last = asked+1, time.Now()
			return errors.New("refused")
		}})
		caches := &Caches{Client: of(t, interceptor.Funcs{}), Live: live}
		short, cancel := context.WithTimeout(t.Context(), 4*each)
		defer cancel()
		if err := caches.catchUp(short); err == nil || asked < 3 {
			t.Errorf("it was asked %d times, %v", asked, err)
		}
	})
}
