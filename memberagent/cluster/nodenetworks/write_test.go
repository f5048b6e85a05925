// SPDX-License-Identifier: Apache-2.0

package nodenetworks

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/raced"
)

// answers is an API server that answers updates and creations with errors.
type answers struct {
	client.Client
	update, create error
	asked          *int
}

func (a answers) Update(context.Context, client.Object, ...client.UpdateOption) error {
	*a.asked++
	return a.update
}
func (a answers) Create(context.Context, client.Object, ...client.CreateOption) error {
	*a.asked++
	return a.create
}

// TestOneThatCannotBeWrittenHoldsUpNoOther, and what was lost to a cache that is behind is told from what was refused.
func TestOneThatCannotBeWrittenHoldsUpNoOther(t *testing.T) {
	kind := schema.GroupResource{Group: v1alpha1.GroupName, Resource: "nodenetworks"}
	conflict, exists := apierrors.NewConflict(kind, "n1", nil), apierrors.NewAlreadyExists(kind, "n2")
	refused := apierrors.NewForbidden(kind, "n2", nil)
	for _, c := range []struct {
		update, create error
		lost           bool
	}{
		{nil, nil, false}, {conflict, nil, true}, {nil, exists, true}, {conflict, exists, true}, {conflict, refused, false},
		{refused, nil, false},
	} {
		asked := 0
		r := &Reconciler{Client: answers{update: c.update, create: c.create, asked: &asked}}
		spec := v1alpha1.NodeNetworkSpec{PodCIDRs: []string{"10.8.0.1/32"}}
		err := r.write(t.Context(), []v1alpha1.NodeNetwork{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}},
			[]corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, {ObjectMeta: metav1.ObjectMeta{Name: "n2"}}},
			map[string]v1alpha1.NodeNetworkSpec{"n1": spec, "n2": spec})
		for _, part := range []error{c.update, c.create} {
			if part != nil && !errors.Is(err, part) {
				t.Errorf("update %v, create %v: %v", c.update, c.create, err)
			}
		}
		if asked != 2 || raced.Lost(err) != c.lost {
			t.Errorf("update %v, create %v: asked %d times, lost %v", c.update, c.create, asked, raced.Lost(err))
		}
	}
}
