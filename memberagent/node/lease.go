// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/reach"
)

// renewTimeout bounds one try to renew the Lease: the next follows with the loop's next round.
const renewTimeout = 2 * time.Second

// Alive implements Cluster.
func (k *Kube) Alive(gateway *v1alpha1.Gateway) {
	k.beats.put(metav1.ObjectMeta{Name: gateway.Name, UID: gateway.UID})
}

// renew keeps the Lease of the gateway until the context ends. It is renewed for as long as the loop goes round, and
// not while the status that the gateway reported last is not written: that status would be taken to hold.
func (k *Kube) renew(ctx context.Context) {
	var last time.Time
	failing := false
	for {
		var gateway metav1.ObjectMeta
		select {
		case <-ctx.Done():
			return
		case gateway = <-k.beats:
		}
		if k.behind.Load() || time.Since(last) < reach.RenewEvery {
			continue
		}
		now := time.Now()
		try, cancel := context.WithTimeout(ctx, renewTimeout)
		err := k.renewLease(try, gateway, now)
		cancel()
		if err == nil {
			last = now
		} else if !failing && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Info("the gateway's Lease is not renewed", "why", err.Error())
		}
		failing = err != nil
	}
}

func (k *Kube) renewLease(ctx context.Context, gateway metav1.ObjectMeta, now time.Time) error {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: k.names.Namespace, Name: v1alpha1.GatewayLeasePrefix + gateway.Name,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
			// It goes with the Gateway.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "Gateway", Name: gateway.Name, UID: gateway.UID,
			}},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       ptr.To(gateway.Name),
			LeaseDurationSeconds: ptr.To(int32((reach.SilentAfter + reach.SilentConfirm).Seconds())),
			RenewTime:            ptr.To(metav1.NewMicroTime(now)),
		},
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"ownerReferences": lease.OwnerReferences}, "spec": lease.Spec,
	})
	if err != nil {
		return fmt.Errorf("encode Lease %s: %w", lease.Name, err)
	}
	err = k.client.Patch(ctx, lease.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) {
		err = k.client.Create(ctx, lease)
	}
	if err != nil {
		return fmt.Errorf("renew Lease %s: %w", lease.Name, err)
	}
	return nil
}
