// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// workers is how many statuses are written at once. Karmada's controllers have five for each kind of thing.
const workers = 10

// reporter writes what members say into their Works, as Karmada's controllers do: what has changed waits in a queue for
// a worker, which takes what is to be said then.
type reporter struct {
	client  client.Client
	workers chan struct{}
	limit   *rate.Limiter // that of the one client which all workers share
}

// newReporter returns one that makes so many requests a second, and half as many more at once; 0 is no limit. That is
// how --kube-api-qps and --kube-api-burst of Karmada's controllers are to each other.
func newReporter(c client.Client, perSecond int) *reporter {
	r := &reporter{client: c, workers: make(chan struct{}, workers), limit: rate.NewLimiter(rate.Inf, 0)}
	if perSecond > 0 {
		r.limit = rate.NewLimiter(rate.Limit(perSecond), perSecond*3/2)
	}
	return r
}

// report writes into a Work what an object of a member says, unless that was said before or is nothing. It returns what
// the Work has then.
func (r *reporter) report(ctx context.Context, key client.ObjectKey, id workv1alpha1.ResourceIdentifier, said []byte,
	status func(context.Context) ([]byte, error)) ([]byte, error) {
	select {
	case <-ctx.Done():
		return said, ctx.Err()
	case r.workers <- struct{}{}:
	}
	defer func() { <-r.workers }()
	raw, err := status(ctx)
	if err != nil {
		return said, fmt.Errorf("read what %s says: %w", key, err)
	}
	if raw == nil || bytes.Equal(raw, said) {
		return said, nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"manifestStatuses": []any{
		map[string]any{"identifier": id, "status": json.RawMessage(raw)},
	}}})
	if err != nil {
		return said, fmt.Errorf("encode a report: %w", err)
	}
	if err := r.limit.Wait(ctx); err != nil {
		return said, err
	}
	work := &workv1alpha1.Work{}
	work.Namespace, work.Name = key.Namespace, key.Name
	err = r.client.Status().Patch(ctx, work, client.RawPatch(types.MergePatchType, patch))
	if client.IgnoreNotFound(err) != nil {
		return said, fmt.Errorf("write the status of the Work %s: %w", key, err)
	}
	return raw, nil
}
