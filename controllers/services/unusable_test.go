// SPDX-License-Identifier: Apache-2.0

package services

import (
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestClustersThatCannotUseAnImportAreNamed(t *testing.T) {
	var members []*member
	for _, name := range []string{"c1", "c2", "c3", "c4"} {
		m := &member{Member: &Member{Cluster: name, Known: true, Unusable: []v1alpha1.ImportProblem{
			{Namespace: "shop", Names: []string{"cart", "pay"}, Reason: "Refused", Message: strings.Repeat("x", 1000)},
		}}}
		members = append(members, m)
	}
	members[0].Unusable = append(members[0].Unusable, v1alpha1.ImportProblem{Namespace: "shop", Names: []string{"new"},
		Reason: v1alpha1.ReasonImportWithheld})
	members[0].Unusable[0].Reason = "a b;c"
	members[1].Known = false
	got := unusableIn(members)
	if len(got) != 2 || !strings.HasPrefix(got[key{"shop", "pay"}], `; not usable in c1 (Unknown: "xxx`) ||
		strings.Contains(got[key{"shop", "pay"}], "c2") {
		t.Errorf("got %v", got)
	}
	members[1].Known = true
	if text := unusableIn(members)[key{"shop", "cart"}]; !strings.HasSuffix(text, " and 1 more") || len(text) > 700 {
		t.Errorf("got %s", text)
	}
	members[1].Unusable[0].Message = strings.Repeat("ö", 500)
	if text := unusableIn(members[1:2])[key{"shop", "cart"}]; !strings.HasSuffix(text, `ö…")`) {
		t.Errorf("a rune is cut in two: %s", text)
	}
	good := string(encoded(t, v1alpha1.BundleStatus{ObservedRevision: 1, Exports: []v1alpha1.Export{web(1)}}))
	raw := strings.Replace(good, `"exports":`, `"imports":"nonsense","exports":`, 1)
	if said, err := readReport([]byte(raw), nil); err != nil || len(said.exports) != 1 || said.imports != nil {
		t.Errorf("malformed problems cost the exports: %v, %v", said, err)
	}
}
