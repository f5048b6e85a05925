// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"github.com/karmada-io/karmada/pkg/util/names"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// snapshot is all that diagnose judges: what was read of the Karmada API, of the cluster that hosts Karmada, and of the
// members. The checks on it ask nobody, so that they say the same of one that was written to a file.
type snapshot struct {
	taken time.Time
	// invocation is the command as the user types it, and plugin the version of the one that took the snapshot.
	invocation string
	plugin     string
	scheme     *runtime.Scheme
	karmada    place
	// host has the controller's Deployment; one that runs elsewhere is not there, and unread says so.
	host    place
	members []place
}

// place is an API server, and what was read of it.
type place struct {
	// name of the member; empty for Karmada's own.
	name string
	// context is what kubectl calls it.
	context string
	// api is where it was read; nil where it could not be asked, or was read from a file.
	api *api
	// kubernetes is the version of the API server; empty where it is not known.
	kubernetes string
	// objects, each with its kind.
	objects []client.Object
	// unread says by kind why none of it was read, or by "" why nothing was.
	unread map[string]string
}

// everything is the key in unread of a place that could not be asked at all.
const everything = ""

// of lists the objects of a type.
func of[T client.Object](p *place) []T {
	var out []T
	for _, o := range p.objects {
		if t, is := o.(T); is {
			out = append(out, t)
		}
	}
	return out
}

// one returns the object of a type and a name; it is not there if the second result is false.
func one[T client.Object](p *place, namespace, name string) (T, bool) {
	for _, o := range of[T](p) {
		if o.GetNamespace() == namespace && o.GetName() == name {
			return o, true
		}
	}
	var none T
	return none, false
}

// lacks says why a kind was not read; "" if it was.
func (p *place) lacks(kind string) string {
	if why := p.unread[everything]; why != "" {
		return why
	}
	return p.unread[kind]
}

// member of a name; nil if it was not asked for.
func (s *snapshot) member(name string) *place {
	for i := range s.members {
		if s.members[i].name == name {
			return &s.members[i]
		}
	}
	return nil
}

// reader reads the objects of a place as from its API server, for what was written to ask one.
type reader struct {
	*place
	scheme *runtime.Scheme
}

// reader of a place. The scheme is what every client of this command has.
func (s *snapshot) reader(p *place) reader { return reader{p, s.scheme} }

// unreadError is what a reader returns of a kind that was not read.
func (r reader) unreadError(kind string) error {
	if why := r.lacks(kind); why != "" {
		return errors.New(why)
	}
	return nil
}

// Get implements client.Reader. Kinds that no snapshot holds are not there.
func (r reader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	kind := r.kindOf(into)
	if err := r.unreadError(kind); err != nil {
		return err
	}
	for _, o := range r.objects {
		if reflect.TypeOf(o) == reflect.TypeOf(into) && client.ObjectKeyFromObject(o) == key {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o.DeepCopyObject()).Elem())
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, key.Name)
}

// List implements client.Reader, with a namespace and a selector of labels.
func (r reader) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	gvk, err := r.gvk(into)
	if err != nil {
		return err
	}
	kind := gvk.Kind[:len(gvk.Kind)-len("List")]
	if err := r.unreadError(kind); err != nil {
		return err
	}
	var want client.ListOptions
	want.ApplyOptions(options)
	var items []runtime.Object
	for _, o := range r.objects {
		if r.kindOf(o) != kind || want.Namespace != "" && want.Namespace != o.GetNamespace() ||
			want.LabelSelector != nil && !want.LabelSelector.Matches(labels.Set(o.GetLabels())) {
			continue
		}
		items = append(items, o.DeepCopyObject())
	}
	return meta.SetList(into, items)
}

func (r reader) gvk(o runtime.Object) (schema.GroupVersionKind, error) {
	kinds, _, err := r.scheme.ObjectKinds(o)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("kind of %T: %w", o, err)
	}
	return kinds[0], nil
}

// kindOf is empty for a type that the scheme does not have.
func (r reader) kindOf(o runtime.Object) string {
	gvk, _ := r.gvk(o)
	return gvk.Kind
}

// fleet is what show tells from, out of a snapshot.
func (s *snapshot) fleet() *fleet {
	f := &fleet{now: s.taken}
	if lease, ok := one[*coordinationv1.Lease](&s.karmada, v1alpha1.Namespace, controllerName); ok &&
		lease.Spec.RenewTime != nil {
		f.leaderSeen = lease.Spec.RenewTime.Time
	}
	for _, set := range of[*v1alpha1.ClusterSet](&s.karmada) {
		f.clusterSets = append(f.clusterSets, *set)
	}
	for _, policy := range of[*v1alpha1.ServicePolicy](&s.karmada) {
		f.policies = append(f.policies, *policy)
	}
	f.templates = s.templates()
	for _, m := range of[*v1alpha1.Member](&s.karmada) {
		f.all = append(f.all, m.Name)
		p := s.member(m.Name)
		if p == nil {
			continue
		}
		fm := fleetMember{Member: *m, bundles: s.bundles(m.Name)}
		if why := cmp.Or(p.lacks(everything), p.lacks("Gateway")); why != "" {
			fm.err = errors.New(why)
		} else {
			fm.gateways, fm.services = gatewaysIn(p), servicesIn(p)
		}
		f.members = append(f.members, fm)
	}
	if len(f.members) < len(f.all) {
		for i := range f.members {
			f.only = append(f.only, f.members[i].Name)
		}
	}
	return f
}

func gatewaysIn(p *place) []v1alpha1.Gateway {
	var out []v1alpha1.Gateway
	for _, g := range of[*v1alpha1.Gateway](p) {
		out = append(out, *g)
	}
	return out
}

// servicesIn returns nil where not all of them were read.
func servicesIn(p *place) *memberServices {
	for _, kind := range []string{"ServiceExport", "ServiceImport", "EndpointSlice", "Namespace"} {
		if p.lacks(kind) != "" {
			return nil
		}
	}
	out := &memberServices{namespaces: map[string]bool{}}
	for _, e := range of[*mcsv1beta1.ServiceExport](p) {
		out.exports = append(out.exports, *e)
	}
	for _, i := range of[*mcsv1beta1.ServiceImport](p) {
		out.imports = append(out.imports, *i)
	}
	for _, e := range of[*discoveryv1.EndpointSlice](p) {
		if _, ok := e.Labels[mcsv1beta1.LabelServiceName]; ok {
			out.slices = append(out.slices, *e)
		}
	}
	for _, n := range of[*corev1.Namespace](p) {
		out.namespaces[n.Name] = n.DeletionTimestamp == nil
	}
	return out
}

// bundles of a member, from its Works, with their imports as they are now. One that does not decode is left out:
// checkKarmada says so of its Work.
func (s *snapshot) bundles(cluster string) []v1alpha1.Bundle {
	var out []v1alpha1.Bundle
	for _, w := range of[*workv1alpha1.Work](&s.karmada) {
		if w.Namespace != names.GenerateExecutionSpaceName(cluster) || w.Name == peeringWork() {
			continue
		}
		if b, err := bundleOf(w); err == nil {
			out = append(out, b)
		}
	}
	return v1alpha1.Current(out)
}

func peeringWork() string { return names.GenerateWorkName("Peering", v1alpha1.PeeringName, "") }
