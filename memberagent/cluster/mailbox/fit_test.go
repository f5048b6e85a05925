// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestFit(t *testing.T) {
	exports := func(count, backends int) []v1alpha1.Export {
		var out []v1alpha1.Export
		for i := range count {
			e := v1alpha1.Export{Namespace: "sample", Name: fmt.Sprintf("web-%05d", i), CreatedAt: metav1.Unix(int64(10_000-i), 0)}
			e.Backends = []v1alpha1.Backends{{Addresses: make([]v1alpha1.Backend, backends)}}
			out = append(out, e)
		}
		return out
	}
	big := exports(3, 10)
	big[1].Backends[0].Addresses = make([]v1alpha1.Backend, 20_000)
	for name, c := range map[string]struct {
		all     []v1alpha1.Export
		leftOut int32
		oldest  string
	}{
		"all":              {exports(10, 1), 0, "web-00009"},
		"none":             {nil, 0, ""},
		"too many":         {exports(2500, 0), 1500, "web-02499"},
		"one is too big":   {big, 1, "web-00002"},
		"too big together": {exports(100, 200), -1, "web-00099"},
	} {
		t.Run(name, func(t *testing.T) {
			count := len(c.all)
			kept, leftOut := fit(c.all)
			data, err := json.Marshal(kept)
			if err != nil || len(data) > maxReport+2 {
				t.Fatalf("%d bytes, %v", len(data), err)
			}
			if len(kept)+int(leftOut) != count || c.leftOut >= 0 && leftOut != c.leftOut || c.leftOut < 0 && leftOut == 0 {
				t.Errorf("%d kept, %d left out", len(kept), leftOut)
			}
			if c.oldest != "" && kept[0].Name != c.oldest {
				t.Errorf("the first is %s, want the oldest, %s", kept[0].Name, c.oldest)
			}
		})
	}
}
