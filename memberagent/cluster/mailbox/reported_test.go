// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestReported(t *testing.T) {
	made := metav1.NewTime(time.Unix(1_700_000_000, 0))
	report := []v1alpha1.Export{
		{Namespace: "a", Name: "web", CreatedAt: made},
		{Namespace: "b", Name: "db", CreatedAt: made},
		{Namespace: "b", Name: "web", CreatedAt: made},
	}
	for name, c := range map[string]struct {
		namespace, name string
		created         metav1.Time
		want            *v1alpha1.Export
	}{
		"reported":             {"b", "db", made, &report[1]},
		"another namespace":    {"a", "db", made, nil},
		"deleted and anew":     {"b", "db", metav1.NewTime(made.Add(time.Second)), nil},
		"the last of a report": {"b", "web", made, &report[2]},
	} {
		e := &mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name,
			CreationTimestamp: c.created}}
		if got := reported(report, e); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
