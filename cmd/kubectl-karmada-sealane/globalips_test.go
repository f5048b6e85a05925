// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// globalsOf is a member with the block 242.1.0.0/24: a service of both families, one that is kept, a headless one with
// pods and hosts outside, a namespace's addresses and the cluster's, and a service and a namespace that have none.
func globalsOf(now time.Time) *memberGlobals {
	gone := metav1.NewTime(now.Add(-time.Minute))
	without := func(reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.GlobalIPAllocated, Status: metav1.ConditionFalse, Reason: reason,
			Message: message}}
	}
	web := v1alpha1.NewGlobalAllocation(v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalIngress, Namespace: "shop", Name: "web"})
	web.Spec.Ingress = &v1alpha1.IngressAllocation{IP: "242.1.0.17", IPv6: "fd5e:a1a4:e242:f201::11",
		Ports: []v1alpha1.GlobalPort{{Protocol: corev1.ProtocolTCP, Port: 80,
			Backends: []v1alpha1.GlobalBackend{{IP: "10.8.0.4", Port: 8080}, {IP: "fd08::4", Port: 8080}}},
			{Protocol: corev1.ProtocolTCP, Port: 443, Backends: []v1alpha1.GlobalBackend{{IP: "10.8.0.4", Port: 8443}}}}}
	old := v1alpha1.NewGlobalAllocation(v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalIngress, Namespace: "shop", Name: "old"})
	old.Spec.Ingress = &v1alpha1.IngressAllocation{IP: "242.1.0.9", ReleasedAt: &gone}
	db := v1alpha1.NewGlobalAllocation(v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalIngress, Namespace: "data", Name: "db"})
	db.Spec.Ingress = &v1alpha1.IngressAllocation{Pods: []v1alpha1.GlobalPod{
		{Name: "10.8.0.6", IP: "10.8.0.9", GlobalIP: "242.1.0.103"}, // a pod may be called so
		{Name: "172.31.5.7", IP: "172.31.5.7", GlobalIP: "242.1.0.101", GlobalIPv6: "fd5e:a1a4:e242:f201::65"},
		{Name: "172.31.5.8", GlobalIP: "242.1.0.102", ReleasedAt: &gone}, {Name: "172.31.5.9", IP: "172.31.5.9"},
		{Name: "db-0", IP: "10.8.0.5", IPv6: "fd08::5", GlobalIP: "242.1.0.100", GlobalIPv6: "fd5e:a1a4:e242:f201::64"},
		{Name: "db-1", GlobalIP: "242.1.0.20", ReleasedAt: &gone}, {Name: "db-2", IP: "10.8.0.7"}}}
	clients := v1alpha1.NewGlobalAllocation(v1alpha1.GlobalOwner{Kind: v1alpha1.GlobalEgress, Namespace: "shop",
		Name: "clients"})
	clients.Spec.Egress = &v1alpha1.PodEgressAllocation{EgressRange: v1alpha1.EgressRange{First: 5, Last: 6},
		Pods: []string{"10.8.0.8", "10.8.0.9"}}
	return &memberGlobals{
		allocations: []v1alpha1.GlobalAllocation{*web, *old, *db, *clients},
		cluster: []v1alpha1.ClusterGlobalEgressIP{{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterEgressName},
			Status: v1alpha1.ClusterGlobalEgressIPStatus{CIDR: "242.1.0.0/24",
				Range: &v1alpha1.EgressRange{First: 1, Last: 4}}}},
		ingress: []v1alpha1.GlobalIngressIP{{ObjectMeta: metav1.ObjectMeta{Namespace: "data", Name: "db"},
			Status: v1alpha1.GlobalIngressIPStatus{Conditions: without(v1alpha1.ReasonBlockExhausted, "one pod has none")}},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "late"}, Status: v1alpha1.GlobalIngressIPStatus{
				Conditions: without(v1alpha1.ReasonBlockExhausted, "no address is left")}}},
		egress: []v1alpha1.GlobalEgressIP{{ObjectMeta: metav1.ObjectMeta{Namespace: "data", Name: "many"},
			Status: v1alpha1.GlobalEgressIPStatus{Conditions: without(v1alpha1.ReasonEgressExhausted, "no range is left")}}},
	}
}

// TestWhoHasWhichGlobalAddress is told by address, and who has none and why.
func TestWhoHasWhichGlobalAddress(t *testing.T) {
	f := twoAndLost()
	text := func() string {
		var lines []string
		for _, r := range globalIPRows(f) {
			if r.Cluster == "c1" {
				lines = append(lines, strings.Join(r.cells(), "|"))
			}
		}
		return strings.Join(lines, "\n")
	}
	const ofShop = "c1|242.1.0.9||Service|shop|old|Kept|exported no more|||\n" +
		"c1|242.1.0.17|fd5e:a1a4:e242:f201::11|Service|shop|web|InUse|||10.8.0.4,fd08::4|80/TCP,443/TCP\n"
	const six = "fd5e:a1a4:e242:f201::"
	want := ofShop + "c1|242.1.0.20||Pod|data|db/db-1|Kept|for the pod of that name, if it comes back|||\n" +
		"c1|242.1.0.100|" + six + "64|Pod|data|db/db-0|InUse|||10.8.0.5,fd08::5|\n" +
		"c1|242.1.0.101|" + six + "65|Host|data|db/172.31.5.7|InUse||||\n" +
		"c1|242.1.0.102||Host|data|db/172.31.5.8|Kept|for the host of that name, if it comes back|||\n" +
		"c1|242.1.0.103||Pod|data|db/10.8.0.6|InUse|||10.8.0.9|\n" +
		"c1|242.1.0.129-242.1.0.132|" + six + "81-" + six + "84|ClusterGlobalEgressIP||default|InUse||c1-gw||\n" +
		"c1|242.1.0.133-242.1.0.134|" + six + "85-" + six + "86|GlobalEgressIP|shop|clients|InUse||c1-gw|" +
		"10.8.0.8,10.8.0.9|\n" +
		"c1|||GlobalEgressIP|data|many|None|GlobalEgressExhausted: no range is left|||\n" +
		"c1|||Host|data|db/172.31.5.9|None|no address of the cluster's block is left|||\n" +
		"c1|||Pod|data|db/db-2|None|no address of the cluster's block is left||10.8.0.7|\n" +
		"c1|||Service|shop|late|None|GlobalCIDRExhausted: no address is left|||"
	if got := text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	second := f.members[0].gateways[0]
	second.Name, second.Spec.Slot = "c1-gw2", 1
	f.members[0].gateways = append(f.members[0].gateways, second)
	if !strings.Contains(text(), "c1|242.1.0.141-242.1.0.142|"+six+"8d-"+six+"8e|GlobalEgressIP|shop|clients|InUse||"+
		"c1-gw2|") {
		t.Errorf("two gateways:\n%s", text())
	}
	f.members[0].Status.GlobalIPv6CIDR = "" // of a version before blocks had any
	if !strings.Contains(text(), "c1|242.1.0.141-242.1.0.142||GlobalEgressIP|shop|clients|InUse||c1-gw2|") {
		t.Errorf("a block without IPv6:\n%s", text())
	}
	f.members[0].gateways = nil
	if !strings.Contains(text(), "c1|||GlobalEgressIP|shop|clients|InUse|numbers 5 to 6 of each gateway's share, of "+
		"which there is none|") {
		t.Errorf("no gateway:\n%s", text())
	}
	// Of objects of a namespace the API server tells no others.
	f.namespace, f.members[0].globals.egress = "shop", nil
	f.members[0].globals.ingress = f.members[0].globals.ingress[1:]
	if got := text(); !strings.HasPrefix(got, ofShop) || strings.Contains(got, "|data|") ||
		strings.Contains(got, "|default|") {
		t.Errorf("-n shop:\n%s", got)
	}
}

// TestGlobalAddressesOfMembersThatWereNotAsked: each of them is a row, and the command fails and names them.
func TestGlobalAddressesOfMembersThatWereNotAsked(t *testing.T) {
	f := twoAndLost()
	rows := globalIPRows(f)
	if r := rows[len(rows)-1]; r.Cluster != "c3" || r.State != unreachable || r.Message == "" {
		t.Errorf("the last row is %+v", r)
	}
	err := f.asked()
	if finding := (*finding)(nil); !errors.As(err, &finding) || !strings.Contains(finding.found, "c3: unreachable: ") ||
		strings.Contains(finding.found, "c1") {
		t.Errorf("%v", err)
	}
	f.members = f.members[:2]
	if err := f.asked(); err != nil {
		t.Error(err)
	}
}
