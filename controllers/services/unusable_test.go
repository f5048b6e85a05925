// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestClustersThatCannotUseAnImportAreNamed(t *testing.T) {
	var members []*member
	seen := []*view{{}, {}, {}, {}, nil}
	services := []*service{{key: key{"shop", "cart"}, views: seen}, {key: key{"shop", "pay"}, views: seen},
		{key: key{"shop", "new"}, views: seen}}
	for _, name := range []string{"c1", "c2", "c3", "c4", "hidden"} {
		m := &member{Member: &Member{Cluster: name, Known: true, Unusable: []v1alpha1.ImportProblem{
			{Namespace: "shop", Names: []string{"cart", "pay", "cart", "nobody's"}, Reason: "Refused",
				Message: strings.Repeat("x", 1000)},
		}}}
		members = append(members, m)
	}
	members[0].Unusable = append(members[0].Unusable, v1alpha1.ImportProblem{Namespace: "shop", Names: []string{"new"},
		Reason: v1alpha1.ReasonImportWithheld})
	members[2].Unusable = append(members[2].Unusable, v1alpha1.ImportProblem{Namespace: "shop", Names: []string{"new"},
		Reason: v1alpha1.ReasonImportPending, Message: "it is not made yet"})
	members[0].Unusable[0].Reason = "a b;c"
	members[1].Known = false
	got := unusableIn(members, services)
	if len(got) != 2 || !strings.HasPrefix(got[key{"shop", "pay"}], `; not usable in c1 (Unknown: "xxx`) ||
		strings.Contains(got[key{"shop", "pay"}], "c2") || strings.Contains(got[key{"shop", "pay"}], "more") {
		t.Errorf("got %v", got)
	}
	members[1].Known = true
	text := unusableIn(members, services)[key{"shop", "cart"}]
	if !strings.HasSuffix(text, " and 1 more") || len(text) > 700 {
		t.Errorf("got %s", text)
	}
	members[1].Unusable[0].Message = strings.Repeat("ö", 500)
	if text := unusableIn(members[1:2], services)[key{"shop", "cart"}]; !strings.HasSuffix(text, `ö…")`) {
		t.Errorf("a rune is cut in two: %s", text)
	}
	good := string(encoded(t, v1alpha1.BundleStatus{ObservedRevision: 1, Exports: []v1alpha1.Export{web(1)}}))
	raw := strings.Replace(good, `"exports":`, `"imports":"nonsense","exports":`, 1)
	if said, err := readReport([]byte(raw), nil); err != nil || len(said.exports) != 1 || said.imports != nil {
		t.Errorf("malformed problems cost the exports: %v, %v", said, err)
	}
	large := `{"observedRevision":1,"exports":[],"imports":[{"namespace":"shop","names":["x"` +
		strings.Repeat(`,"x"`, maxImportProblems/4) + `],"reason":"NamespaceMissing"}]}`
	if said, err := readReport([]byte(large), nil); err != nil || said.imports != nil {
		t.Errorf("a list of %d bytes is read: %v", len(large), err)
	}
}

// BenchmarkHostileProblems: what a decision takes longer for a member that reports as many problems as are read, of
// services that nobody has, is what it takes to look each of them up.
func BenchmarkHostileProblems(b *testing.B) {
	for _, hostile := range []int{0, 1, 5} {
		b.Run(fmt.Sprintf("hostile=%d", hostile), func(b *testing.B) {
			in := Input{Shards: 1, Now: now}
			for i := range 20 {
				var exports []v1alpha1.Export
				for s := i; s < 250; s += 20 {
					e := web(i + 1)
					e.Name = fmt.Sprint("web-", s)
					exports = append(exports, e)
				}
				in.Members = append(in.Members, cluster(i+1, exports...))
			}
			for i := range hostile {
				p := v1alpha1.ImportProblem{Namespace: "x", Reason: v1alpha1.ReasonNamespaceMissing}
				for n := range maxImportProblems / 7 {
					p.Names = append(p.Names, fmt.Sprintf("%x", n))
				}
				in.Members[10+i].ReadsParts, in.Members[10+i].Unusable = true, []v1alpha1.ImportProblem{p}
			}
			for b.Loop() {
				if d := Decide(in); d.Services != 250 {
					b.Fatalf("%d services", d.Services)
				}
			}
		})
	}
}
