// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// maxExports is how many exports of one shard the broker accepts.
	maxExports = 1000
	// maxReport is how much JSON they may make together: a Bundle, which imports as well, has to fit into
	// etcd in the member and, within its Work, on the Karmada API.
	maxReport = 512 << 10
)

// fit returns the exports that the report has room for, the oldest first, and how many are left out. A later
// one that is smaller may still fit.
func fit(all []v1alpha1.Export) ([]v1alpha1.Export, int32) {
	slices.SortFunc(all, func(a, b v1alpha1.Export) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt.Time), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
	size := 0
	kept := make([]v1alpha1.Export, 0, min(len(all), maxExports))
	for i := range all {
		if len(kept) == maxExports {
			break
		}
		// The types of the API always encode.
		data, _ := json.Marshal(&all[i])
		if size+len(data)+1 > maxReport {
			continue
		}
		size += len(data) + 1
		kept = append(kept, all[i])
	}
	return kept, int32(len(all) - len(kept))
}
