// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/imports"
)

// maxProblems is how much JSON the problems with imports may make in the report on one shard.
const maxProblems = 128 << 10

// judge returns what is wrong with the imports of these Bundles, by import; fine ones are not in it.
func judge(ctx context.Context, c client.Reader, refusals *imports.Refusals, limited bool,
	bundles ...v1alpha1.Bundle) (map[types.NamespacedName]imports.Verdict, error) {
	list, namespaces := &mcs.ServiceImportList{}, &metav1.PartialObjectMetadataList{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	for _, l := range []client.ObjectList{list, namespaces} {
		if err := c.List(ctx, l, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list %T: %w", l, err)
		}
	}
	there, have := map[string]bool{}, map[types.NamespacedName]*mcs.ServiceImport{}
	for i := range namespaces.Items {
		there[namespaces.Items[i].Name] = true
	}
	for i := range list.Items {
		have[client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i]
	}
	out := map[types.NamespacedName]imports.Verdict{}
	for i := range bundles {
		for j := range bundles[i].Spec.Imports {
			wanted := &bundles[i].Spec.Imports[j]
			key := types.NamespacedName{Namespace: wanted.Namespace, Name: wanted.Name}
			if v := imports.Judge(wanted, there[key.Namespace], have[key], refusals.Of(key), limited); v != (imports.Verdict{}) {
				out[key] = v
			}
		}
	}
	return out, nil
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
