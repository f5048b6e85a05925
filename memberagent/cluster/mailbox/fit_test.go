// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestFit(t *testing.T) {
	exports := func(count, backends int) []v1alpha1.Export {
		var out []v1alpha1.Export
		for i := range count {
			e := v1alpha1.Export{Namespace: "sample", Name: fmt.Sprintf("web-%05d", i), CreatedAt: metav1.Unix(int64(10_000-i),
				0)}
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

func TestProblemsWithTenThousandImportsFit(t *testing.T) {
	var all []v1alpha1.ImportProblem
	for i := range 2500 {
		all = append(all, v1alpha1.ImportProblem{
			Namespace: fmt.Sprintf("namespace-of-team-%04d", i/5), Names: []string{fmt.Sprintf("service-%04d", i)},
			Reason: v1alpha1.ReasonImportRefused, Message: strings.Repeat("x", 300),
		})
	}
	kept, left := fitProblems(all)
	data, err := json.Marshal(kept)
	if err != nil || len(data) > maxProblems || int(left)+len(kept) != len(all) || len(kept) < 500 {
		t.Errorf("%d bytes, %d kept, %d left out: %v", len(data), len(kept), left, err)
	}
	one := v1alpha1.ImportProblem{Namespace: "absent", Reason: v1alpha1.ReasonNamespaceMissing,
		Message: "there is no namespace absent"}
	for i := range 2500 {
		one.Names = append(one.Names, fmt.Sprintf("service-of-team-%04d", i))
	}
	if kept, left := fitProblems([]v1alpha1.ImportProblem{one}); len(kept) != 1 || left != 0 || kept[0].Message == "" {
		t.Errorf("one namespace: %d kept, %d left out", len(kept), left)
	}
	if kept, left := fitProblems(nil); kept != nil || left != 0 {
		t.Errorf("nothing: %v, %d", kept, left)
	}
}
