// SPDX-License-Identifier: Apache-2.0

package exports

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func says(name string, conditions ...string) Cluster {
	c := Cluster{Name: name}
	for _, text := range conditions {
		parts := strings.SplitN(text, " ", 4)
		c.Conditions = append(c.Conditions, metav1.Condition{Type: parts[0], Status: metav1.ConditionStatus(parts[1]),
			Reason: parts[2], Message: parts[3]})
	}
	return c
}

func TestSummarise(t *testing.T) {
	good := []string{"Valid True Valid ok", "Ready True Exported ok", "Conflict False NoConflicts ok"}
	var many []Cluster
	for n := range 30 {
		many = append(many, says(fmt.Sprintf("c%02d", n), "Valid False NoService "+strings.Repeat("x", 1000)))
	}
	for name, c := range map[string]struct {
		clusters []Cluster
		want     string
	}{
		"nowhere": {nil, "Valid=False/Pending Ready=False/Pending Conflict=Unknown/Pending"},
		"good everywhere": {[]Cluster{says("c1", good...), says("c2", good...)}, "Valid=True/Valid Ready=True/Exported " +
			"Conflict=False/NoConflicts"},
		"not everywhere": {[]Cluster{says("c1", good...), says("c2", "Valid False NoService none")},
			"Valid=False/NoService Ready=False/Pending Conflict=Unknown/Pending"},
		"conflict in one": {[]Cluster{says("c1", good...), says("c2", "Valid True Valid ok", "Ready True Exported ok",
			"Conflict True PortConflict why")}, "Valid=True/Valid Ready=True/Exported Conflict=True/PortConflict"},
		"silent and failing": {[]Cluster{says("c1"), says("c2", "Valid False InvalidServiceType why")},
			"Valid=False/InvalidServiceType Ready=False/Pending Conflict=Unknown/Pending"},
		"many": {many, "Valid=False/NoService Ready=False/Pending Conflict=Unknown/Pending"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range Summarise(c.clusters, "no policy") {
				got = append(got, fmt.Sprintf("%s=%s/%s", s.Type, s.Status, s.Reason))
				if len(s.Message) > 32768 || s.Message == "" {
					t.Errorf("%s has a message of %d bytes", s.Type, len(s.Message))
				}
			}
			if g := strings.Join(got, " "); g != c.want {
				t.Errorf("got  %s\nwant %s", g, c.want)
			}
		})
	}
}

func TestReadyTellsOfEveryCluster(t *testing.T) {
	got := Summarise([]Cluster{
		says("c1", "Ready True Exported exported to the ClusterSet"), says("c2"),
		says("c3", "Ready False BundleFull no room"), says("c4", "Ready False Pending not yet"),
		says("c5", "Ready True Exported exported to the ClusterSet; 3 of 5 backends left out: 3 outside"),
	}, "")[1]
	const want = "c3: failed: no room; c2: pending: nothing is reported yet; c4: pending: not yet; c1: exported; c5: " +
		"exported, 3 of 5 backends left out: 3 outside"
	if got.Message != want || got.Status != metav1.ConditionFalse || got.Reason != "BundleFull" {
		t.Errorf("%s %s: %s, want %s", got.Status, got.Reason, got.Message, want)
	}
}
