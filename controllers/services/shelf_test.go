// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"sync"

	jsonpatch "github.com/evanphx/json-patch/v5"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/propagation"
)

// shelf is a client whose cache shows every write at once, and that needs no API server: what is timed is the
// controller alone.
type shelf struct {
	client.Client // nothing else is called

	mu      sync.Mutex
	objects map[reflect.Type]map[client.ObjectKey]client.Object
	// indexed are Works by their namespace and what an index says of them.
	indexed map[[2]string]map[client.ObjectKey]client.Object
	version int
	writes  map[string]int
}

func newShelf() *shelf {
	return &shelf{objects: map[reflect.Type]map[client.ObjectKey]client.Object{},
		indexed: map[[2]string]map[client.ObjectKey]client.Object{}, writes: map[string]int{}}
}

func (s *shelf) Get(_ context.Context, key client.ObjectKey, out client.Object, opts ...client.GetOption) error {
	var options client.GetOptions
	options.ApplyOptions(opts)
	s.mu.Lock()
	o := s.objects[reflect.TypeOf(out)][key]
	s.mu.Unlock()
	if o == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	if options.UnsafeDisableDeepCopy == nil || !*options.UnsafeDisableDeepCopy {
		o = o.DeepCopyObject().(client.Object)
	}
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(o).Elem())
	return nil
}

func (s *shelf) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var options client.ListOptions
	options.ApplyOptions(opts)
	items, _ := reflect.TypeOf(list).Elem().FieldByName("Items")
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.objects[reflect.PointerTo(items.Type.Elem())]
	if options.FieldSelector != nil {
		from = s.indexed[[2]string{options.Namespace, options.FieldSelector.String()}]
	}
	found := make([]runtime.Object, 0, len(from))
	for key, o := range from {
		if options.Namespace != "" && key.Namespace != options.Namespace ||
			options.LabelSelector != nil && !options.LabelSelector.Matches(labels.Set(o.GetLabels())) {
			continue
		}
		if options.UnsafeDisableDeepCopy == nil || !*options.UnsafeDisableDeepCopy {
			o = o.DeepCopyObject().(client.Object)
		}
		found = append(found, o)
	}
	return meta.SetList(list, found) // as the cache does
}

func (s *shelf) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	o.SetGeneration(1)
	if o.GetUID() == "" {
		o.SetUID(uuid.NewUUID())
	}
	s.put(o)
	return nil
}

func (s *shelf) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	o.SetGeneration(o.GetGeneration() + 1)
	if work, ok := o.(*workv1alpha1.Work); ok {
		s.mu.Lock()
		if before, ok := s.objects[reflect.TypeOf(o)][client.ObjectKeyFromObject(o)].(*workv1alpha1.Work); ok {
			work.Status = before.Status // a subresource
		}
		s.mu.Unlock()
	}
	s.put(o)
	return nil
}

// Patch applies a JSON patch to a Work.
func (s *shelf) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	s.mu.Lock()
	stored, ok := s.objects[reflect.TypeOf(o)][client.ObjectKeyFromObject(o)]
	s.mu.Unlock()
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, o.GetName())
	}
	raw, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	operations, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return err
	}
	if raw, err = operations.Apply(raw); err != nil {
		return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(),
			0, false)
	}
	reflect.ValueOf(o).Elem().SetZero()
	if err := json.Unmarshal(raw, o); err != nil {
		return err
	}
	s.put(o)
	return nil
}

// Delete has Karmada delete at once what a Work carried.
func (s *shelf) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	delete(s.objects[reflect.TypeOf(o)], client.ObjectKeyFromObject(o))
	for _, works := range s.indexed {
		delete(works, client.ObjectKeyFromObject(o))
	}
	s.writes["deleted"]++
	return nil
}

func (s *shelf) put(o client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	t := reflect.TypeOf(o)
	if work, ok := o.(*workv1alpha1.Work); ok { // a status does not count
		before, ok := s.objects[t][client.ObjectKeyFromObject(o)].(*workv1alpha1.Work)
		if work.Generation = 1; ok {
			work.Generation = before.Generation
			if !reflect.DeepEqual(before.Spec, work.Spec) {
				work.Generation++
			}
		}
	}
	if s.objects[t] == nil {
		s.objects[t] = map[client.ObjectKey]client.Object{}
	}
	stored := o.DeepCopyObject().(client.Object)
	s.objects[t][client.ObjectKeyFromObject(o)] = stored
	for field, of := range propagation.Indexes() {
		for _, value := range of(o) {
			index := [2]string{o.GetNamespace(), field + "=" + value}
			if s.indexed[index] == nil {
				s.indexed[index] = map[client.ObjectKey]client.Object{}
			}
			s.indexed[index][client.ObjectKeyFromObject(o)] = stored
		}
	}
	s.writes[t.Elem().Name()]++
}
