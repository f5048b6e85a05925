// SPDX-License-Identifier: Apache-2.0

// Package takeover has controllers that begin wait until their caches show what was written before they began. An API
// server serves the first list of a cache from what it has in memory, and sends its events later, so that a busy one
// shows a controller which takes over the past: members that its predecessor knew had not come yet, and it would write
// less to all others than these were told.
package takeover

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/propagation"
)

const (
	// look is how often the caches are looked at, and listAnew how often it is listed what is still there: what was
	// deleted meanwhile never shows.
	look, listAnew = 20 * time.Millisecond, 5 * time.Second
	// askAgain is when the API server is asked again that has not answered.
	askAgain = time.Second
	// page is how many objects are listed at once.
	page = 500
)

// Caches are what the controllers of one process read.
type Caches struct {
	// Client reads from the caches, and Live from the API server.
	Client client.Client
	Live   client.Reader

	mu   sync.Mutex
	done bool
}

// kinds are those that decisions about members are made by, as far as they are Sealane's own.
func kinds() map[client.Object][]client.ListOption {
	return map[client.Object][]client.ListOption{
		&v1alpha1.ClusterSet{}:    nil,
		&v1alpha1.ServicePolicy{}: nil,
		&v1alpha1.Member{}:        nil,
		&v1alpha1.ExportRecord{}:  nil,
		&workv1alpha1.Work{}:      {client.MatchingLabels{propagation.LabelManagedBy: v1alpha1.ManagedBy}},
	}
}

// Shown is a source of nothing, which is in sync once the caches have caught up: a controller that watches it begins no
// sooner.
func Shown[R comparable](c *Caches) source.TypedSyncingSource[R] { return shown[R]{c} }

type shown[R comparable] struct{ caches *Caches }

func (shown[R]) Start(context.Context, workqueue.TypedRateLimitingInterface[R]) error { return nil }

func (s shown[R]) WaitForSync(ctx context.Context) error { return s.caches.catchUp(ctx) }

func (shown[R]) String() string { return "what was written before" }

// object is one that the API server has, and what its version was.
type object struct {
	kind    client.Object
	key     client.ObjectKey
	uid     types.UID
	version string
}

// catchUp waits, once, until the caches show all that the API server has now, or for propagation.MaxCacheLag.
func (c *Caches) catchUp(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return nil
	}
	begin := time.Now()
	left, err := c.listUntilAnswered(ctx)
	if err != nil {
		return err
	}
	listed := begin
	err = wait.ExponentialBackoffWithContext(ctx, every(look), func(ctx context.Context) (caughtUp bool, err error) {
		if left, err = c.behind(ctx, left); err != nil {
			return false, err
		}
		now := time.Now()
		if len(left) == 0 || now.Sub(begin) > propagation.MaxCacheLag {
			return true, nil
		}
		if now.Sub(listed) > listAnew {
			listed = now
			left, err = c.thoseLeft(ctx, left)
		}
		return false, err
	})
	if err != nil {
		return err
	}
	said := "caches have caught up with what was written before"
	if len(left) > 0 {
		said = "caches have not caught up with what was written before, and are waited for no longer"
	}
	log.FromContext(ctx).Info(said, "took", time.Since(begin).String(), "behind", len(left))
	c.done = true
	return nil
}

// every is to try again after a pause, however long a try takes, until the context ends.
func every(pause time.Duration) wait.Backoff {
	return wait.Backoff{Duration: pause, Steps: math.MaxInt}
}

// listUntilAnswered asks the API server what there is until it says so: nothing is decided without knowing it.
func (c *Caches) listUntilAnswered(ctx context.Context) (all []object, err error) {
	err = wait.ExponentialBackoffWithContext(ctx, every(askAgain), func(ctx context.Context) (bool, error) {
		answer, err := c.list(ctx)
		if err != nil {
			log.FromContext(ctx).Error(err, "what was written before is not known, and nothing is decided until it is")
			return false, nil
		}
		all = answer
		return true, nil
	})
	return all, err
}

// list asks the API server for what it has; it answers that from no memory that is older than the question.
func (c *Caches) list(ctx context.Context) ([]object, error) {
	var out []object
	for kind, options := range kinds() {
		gvk, err := apiutil.GVKForObject(kind, c.Client.Scheme())
		if err != nil {
			return nil, fmt.Errorf("find the kind of %T: %w", kind, err)
		}
		list := &metav1.PartialObjectMetadataList{}
		for first := true; first || list.Continue != ""; first = false {
			next := list.Continue
			list = &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
			asked := append([]client.ListOption{client.Limit(page), client.Continue(next)}, options...)
			if err := c.Live.List(ctx, list, asked...); err != nil {
				return nil, fmt.Errorf("list what there is of %s: %w", gvk.Kind, err)
			}
			for i := range list.Items {
				o := &list.Items[i]
				out = append(out, object{kind, client.ObjectKeyFromObject(o), o.UID, o.ResourceVersion})
			}
		}
	}
	return out, nil
}

// behind returns those that the caches do not show yet as they were, or as they have become.
func (c *Caches) behind(ctx context.Context, all []object) ([]object, error) {
	var left []object
	for _, o := range all {
		found, shared := o.kind.DeepCopyObject().(client.Object), true
		err := c.Client.Get(ctx, o.key, found, &client.GetOptions{UnsafeDisableDeepCopy: &shared})
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get %s from the cache: %w", o.key, err)
		}
		if apierrors.IsNotFound(err) || older(found.GetResourceVersion(), o.version) {
			left = append(left, o)
		}
	}
	return left, nil
}

// thoseLeft are those that there still are.
func (c *Caches) thoseLeft(ctx context.Context, all []object) ([]object, error) {
	now, err := c.listUntilAnswered(ctx)
	if err != nil {
		return nil, err
	}
	there := make(map[types.UID]bool, len(now))
	for _, o := range now {
		there[o.uid] = true
	}
	var left []object
	for _, o := range all {
		if there[o.uid] {
			left = append(left, o)
		}
	}
	return left, nil
}

// older compares resource versions, which are numbers that grow where the API server is that of Kubernetes
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions). Of others it is known whether they
// are the same.
func older(found, wanted string) bool {
	a, err := strconv.ParseUint(found, 10, 64)
	b, other := strconv.ParseUint(wanted, 10, 64)
	if err != nil || other != nil {
		return found != wanted
	}
	return a < b
}
