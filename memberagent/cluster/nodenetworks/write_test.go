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
)

// answers is an API server that answers updates and creations with errors.
type answers struct {
	client.Client
	update, create error
}

func (a answers) Update(context.Context, client.Object, ...client.UpdateOption) error {
	return a.update
}
func (a answers) Create(context.Context, client.Object, ...client.CreateOption) error {
	return a.create
}

// TestACacheThatIsBehindIsNoError: what was written a moment ago is not in it yet, and is looked at again.
func TestACacheThatIsBehindIsNoError(t *testing.T) {
	kind := schema.GroupResource{Group: v1alpha1.GroupName, Resource: "nodenetworks"}
	conflict, exists := apierrors.NewConflict(kind, "n1", nil), apierrors.NewAlreadyExists(kind, "n2")
	refused := apierrors.NewForbidden(kind, "n2", nil)
	for _, c := range []struct {
		update, create error
		again, failed  bool
	}{
		{nil, nil, false, false}, {conflict, nil, true, false}, {nil, exists, true, false},
		{conflict, refused, true, true}, {nil, refused, false, true},
	} {
		r := &Reconciler{Client: answers{update: c.update, create: c.create}}
		spec := v1alpha1.NodeNetworkSpec{PodCIDRs: []string{"10.8.0.1/32"}}
		again, err := r.write(t.Context(), []v1alpha1.NodeNetwork{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}},
			[]corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, {ObjectMeta: metav1.ObjectMeta{Name: "n2"}}},
			map[string]v1alpha1.NodeNetworkSpec{"n1": spec, "n2": spec})
		if (again > 0) != c.again || (err != nil) != c.failed || c.failed && !errors.Is(err, refused) {
			t.Errorf("update %v, create %v: again after %s, %v", c.update, c.create, again, err)
		}
	}
}
