// SPDX-License-Identifier: Apache-2.0

package transitions

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

func TestTell(t *testing.T) {
	is := func(kind string, status metav1.ConditionStatus, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: kind, Status: status, Reason: reason, Message: "m"}}
	}
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	waits, exported, failed := is("Ready", no, "Pending"), is("Ready", yes, "Exported"), is("Ready", no, "Failed")
	conflict, none := is("Conflict", yes, "PortConflict"), is("Conflict", no, "NoConflicts")
	reworded := []metav1.Condition{{Type: "Ready", Status: yes, Reason: "Exported", Message: "another"}}
	for name, c := range map[string]struct {
		before, after []metav1.Condition
		want          string
	}{
		"well from the start":      {nil, exported, ""},
		"wrong from the start":     {nil, is("Valid", no, "NoService"), "Warning NoService m"},
		"pending from the start":   {nil, waits, ""},
		"pending no more":          {waits, exported, "Normal Exported m"},
		"pending again":            {exported, waits, "Normal Pending m"},
		"worse":                    {exported, failed, "Warning Failed m"},
		"wrong in another way":     {failed, is("Ready", no, "NotPermitted"), "Warning NotPermitted m"},
		"another message alone":    {exported, reworded, ""},
		"a conflict":               {none, conflict, "Warning PortConflict m"},
		"no conflict from start":   {nil, none, ""},
		"a conflict that is over":  {conflict, none, "Normal NoConflicts m"},
		"a condition that is gone": {conflict, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			events := record.NewFakeRecorder(2)
			Tell(events, &mcsv1beta1.ServiceExport{}, c.before, c.after)
			close(events.Events)
			if got := slices.Collect(func(yield func(string) bool) {
				for e := range events.Events {
					yield(e)
				}
			}); strings.Join(got, "; ") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestSayBounds: another cluster has had a part in the text.
func TestSayBounds(t *testing.T) {
	events := record.NewFakeRecorder(1)
	Say(events, &mcsv1beta1.ServiceExport{}, "Normal", "Reason", "a\nb\x1b[31m"+strings.Repeat("x", 2*MaxMessage))
	got := <-events.Events
	if !strings.HasPrefix(got, "Normal Reason a b [31mx") || len(got) != len("Normal Reason ")+MaxMessage {
		t.Errorf("got %d bytes: %.40q", len(got), got)
	}
}
