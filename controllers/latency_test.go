// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// propagated is how many changes of exports have come to each cluster that imports, as "c1=0 c2=1 c3=1".
func (f *fleet) propagated(clusters ...string) (out string) {
	f.t.Helper()
	families, err := f.registry.Gather()
	f.must(err)
	counts := map[string]uint64{}
	for _, family := range families {
		if family.GetName() != "sealane_propagation_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "importer" {
					counts[l.GetValue()] = m.GetHistogram().GetSampleCount()
				}
			}
			if mean := m.GetHistogram().GetSampleSum() / float64(m.GetHistogram().GetSampleCount()); mean <= 0 || mean > 60 {
				f.t.Errorf("a change took %g s on average", mean)
			}
		}
	}
	for _, c := range clusters {
		out += fmt.Sprintf("%s=%d ", c, counts[c])
	}
	return out
}

// TestTheTimeOfAChangeIsMeasured from when the broker sees it in the exporter's report until each importer answers.
// What is no change of another cluster's exports, or on its way to a cluster that is not reached, or came about while
// the broker did not run, is not measured.
func TestTheTimeOfAChangeIsMeasured(t *testing.T) {
	f := newFleet(t)
	f.connect(3)
	all := []string{"c1", "c2", "c3"}
	for _, c := range all {
		f.ready(c)
	}
	f.settled()
	becomes := func(why, want string) {
		t.Helper()
		f.eventually(why, func() bool { return f.propagated(all...) == want })
		f.settled()
		if got := f.propagated(all...); got != want {
			t.Errorf("%s: %s, and then %s", why, want, got)
		}
	}
	becomes("nothing was exported", "c1=0 c2=0 c3=0 ")
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.7"))
	becomes("a service", "c1=0 c2=1 c3=1 ")
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.8"))
	becomes("a backend", "c1=0 c2=2 c3=2 ")
	f.steer("web", v1alpha1.ServicePolicySpec{Choice: &v1alpha1.ClusterChoice{
		Weights: []v1alpha1.ClusterWeight{{Cluster: "c1", Weight: 1}}}})
	f.eventually("the policy has come to c2", func() bool {
		i := f.imported("c2", "web")
		return i != nil && i.Choice != nil
	})
	becomes("a policy", "c1=0 c2=2 c3=2 ")

	f.silence("c3")
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.7"))
	f.eventually("c2 answers", func() bool { return f.propagated(all...) == "c1=0 c2=3 c3=2 " })
	decided := f.decided("services")
	f.reach("c3", metav1.ConditionFalse)
	f.eventually("each shard is decided on", func() bool { return f.decided("services") >= decided+4 })
	f.report("c3", facts(3))
	f.reach("c3", metav1.ConditionTrue)
	f.settled()
	becomes("c3 was not reached", "c1=0 c2=3 c3=2 ")

	f.stop()
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.9"))
	f.eventually("the report has come to Karmada", f.answered)
	f.start()
	f.eventually("it has come to c2", func() bool {
		i := f.imported("c2", "web")
		text, err := json.Marshal(i)
		return err == nil && strings.Contains(string(text), "10.1.0.9")
	})
	f.settled()
	becomes("what has changed meanwhile", "c1=0 c2=0 c3=0 ")
	f.export("c1", export("sample", "web", "10.101.0.7", "10.1.0.7"))
	becomes("a change after the start", "c1=0 c2=1 c3=1 ")
}
