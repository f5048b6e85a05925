// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/imports"
)

// maxProblems is how much JSON the problems with imports may make in the report on one shard.
const maxProblems = 128 << 10

// around says what there is that the verdicts on imports depend on.
type around struct {
	// exists says whether there is a namespace, and imported returns the ServiceImport of a name, nil if there is none.
	exists   func(namespace string) (bool, error)
	imported func(key types.NamespacedName) (*mcs.ServiceImport, error)
}

// onDemand looks for what the imports of a few Bundles need. ServiceImports belong to the cache.
func onDemand(ctx context.Context, c client.Reader) around {
	namespaces, shared := map[string]bool{}, &client.GetOptions{UnsafeDisableDeepCopy: new(bool)}
	*shared.UnsafeDisableDeepCopy = true
	return around{
		exists: func(name string) (bool, error) {
			there, known := namespaces[name]
			if known {
				return there, nil
			}
			err := c.Get(ctx, types.NamespacedName{Name: name}, metadataOf("Namespace"), shared)
			if client.IgnoreNotFound(err) != nil {
				return false, fmt.Errorf("get namespace %s: %w", name, err)
			}
			namespaces[name] = err == nil
			return err == nil, nil
		},
		imported: func(key types.NamespacedName) (*mcs.ServiceImport, error) {
			found := &mcs.ServiceImport{}
			if err := c.Get(ctx, key, found, shared); apierrors.IsNotFound(err) {
				return nil, nil
			} else if err != nil {
				return nil, fmt.Errorf("get ServiceImport %s: %w", key, err)
			}
			return found, nil
		},
	}
}

// ofAll has listed what the imports of all Bundles need.
func ofAll(ctx context.Context, c client.Reader) (around, error) {
	list, namespaces := &mcs.ServiceImportList{}, &metav1.PartialObjectMetadataList{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	for _, l := range []client.ObjectList{list, namespaces} {
		if err := c.List(ctx, l, client.UnsafeDisableDeepCopy); err != nil {
			return around{}, fmt.Errorf("list %T: %w", l, err)
		}
	}
	there := make(map[string]bool, len(namespaces.Items))
	for i := range namespaces.Items {
		there[namespaces.Items[i].Name] = true
	}
	have := make(map[types.NamespacedName]*mcs.ServiceImport, len(list.Items))
	for i := range list.Items {
		have[client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i]
	}
	return around{
		exists:   func(name string) (bool, error) { return there[name], nil },
		imported: func(key types.NamespacedName) (*mcs.ServiceImport, error) { return have[key], nil },
	}, nil
}

// judge returns what is wrong with the imports of these Bundles, by import; fine ones are not in it.
func judge(a around, refusals *imports.Refusals, limited bool,
	bundles ...v1alpha1.Bundle) (map[types.NamespacedName]imports.Verdict, error) {
	out := map[types.NamespacedName]imports.Verdict{}
	for i := range bundles {
		for j := range bundles[i].Spec.Imports {
			wanted := &bundles[i].Spec.Imports[j]
			key := types.NamespacedName{Namespace: wanted.Namespace, Name: wanted.Name}
			exists, err := a.exists(key.Namespace)
			if err != nil {
				return nil, err
			}
			have, err := a.imported(key)
			if err != nil {
				return nil, err
			}
			if v := imports.Judge(wanted, exists, have, refusals.Of(key), limited); v != (imports.Verdict{}) {
				out[key] = v
			}
		}
	}
	return out, nil
}

// otherImports passes a Bundle of which it is another matter than before which imports there are, or what of them has
// come. Their endpoints change often, and make no problems; and deltas have nothing but these.
func otherImports() predicate.Predicate {
	noDeltas := predicate.NewPredicateFuncs(func(o client.Object) bool { return !v1alpha1.IsDelta(o.GetName()) })
	return predicate.And(noDeltas, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := &e.ObjectOld.(*v1alpha1.Bundle).Spec, &e.ObjectNew.(*v1alpha1.Bundle).Spec
		return !slices.Equal(before.Halves, after.Halves) ||
			!slices.EqualFunc(before.Imports, after.Imports, func(a, b v1alpha1.Import) bool {
				return a.Name == b.Name && a.Namespace == b.Namespace && a.Withheld == b.Withheld
			})
	}})
}

// fitProblems returns the problems that the report has room for, and how many imports it leaves out. Words go before
// names do.
func fitProblems(all []v1alpha1.ImportProblem) ([]v1alpha1.ImportProblem, int32) {
	size, left := 0, int32(0)
	kept := make([]v1alpha1.ImportProblem, 0, len(all))
	for _, p := range all {
		// Half of the room is for words.
		if size > maxProblems/2 {
			p.Message = ""
		}
		// The types of the API always encode.
		data, _ := json.Marshal(&p)
		if size+len(data)+1 > maxProblems {
			left += int32(len(p.Names))
			continue
		}
		size += len(data) + 1
		kept = append(kept, p)
	}
	if len(kept) == 0 {
		return nil, left
	}
	return kept, left
}

// pending says whether some import is only not made yet.
func pending(problems []v1alpha1.ImportProblem) bool {
	for _, p := range problems {
		if p.Reason == v1alpha1.ReasonImportPending {
			return true
		}
	}
	return false
}
