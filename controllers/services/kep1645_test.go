// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

type changes = []func(*v1alpha1.Export)

func settings(change func(*v1alpha1.ServiceSettings)) func(*v1alpha1.Export) {
	return func(e *v1alpha1.Export) { change(&e.Settings) }
}

func withLabels(l map[string]string) func(*v1alpha1.Export) {
	return settings(func(s *v1alpha1.ServiceSettings) { s.Labels = l })
}

func withAnnotations(a map[string]string) func(*v1alpha1.Export) {
	return settings(func(s *v1alpha1.ServiceSettings) { s.Annotations = a })
}

func affinity(seconds int32) func(*v1alpha1.Export) {
	return settings(func(s *v1alpha1.ServiceSettings) {
		s.SessionAffinity = corev1.ServiceAffinityClientIP
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	})
}

func withFamilies(f ...corev1.IPFamily) func(*v1alpha1.Export) {
	return settings(func(s *v1alpha1.ServiceSettings) { s.IPFamilies = f })
}

func udp(p v1alpha1.ServicePort) v1alpha1.ServicePort {
	p.Protocol = corev1.ProtocolUDP
	return p
}

func app(p v1alpha1.ServicePort, protocol string) v1alpha1.ServicePort {
	p.AppProtocol = &protocol
	return p
}

// kep1645 are the rules of KEP-1645, Constraints and Conflict Resolution, and of the comments in mcs-api
// v0.5.2, each with what c3 imports of c1's older and c2's newer export, and the Conflict of both.
var kep1645 = []struct {
	rule           string
	c1, c2         changes
	field          string // of the merged settings, as JSON
	want, conflict string
}{
	{"Conflict is false with NoConflicts when all exports agree", nil, nil,
		"type", `"ClusterSetIP"`, "False NoConflicts"},
	{"Service Port: the union of the ports is exposed",
		changes{withPorts(port("a", 1))}, changes{withPorts(port("b", 2))},
		"ports", `[{"name":"a","protocol":"TCP","port":1},{"name":"b","protocol":"TCP","port":2}]`, "True PortConflict"},
	{"Service Port: ports merge by name first, and of one name the oldest wins",
		changes{withPorts(port("http", 80))}, changes{withPorts(port("http", 8080))},
		"ports", `[{"name":"http","protocol":"TCP","port":80}]`, "True PortConflict"},
	{"Service Port: then by protocol and number, and the oldest names it",
		changes{withPorts(port("http", 80))}, changes{withPorts(port("web", 80))},
		"ports", `[{"name":"http","protocol":"TCP","port":80}]`, "True PortConflict"},
	{"Service Port: one number with two protocols is two ports",
		changes{withPorts(port("dns-tcp", 53))}, changes{withPorts(udp(port("dns", 53)))},
		"ports", `[{"name":"dns-tcp","protocol":"TCP","port":53},{"name":"dns","protocol":"UDP","port":53}]`,
		"True PortConflict"},
	{"Service Port: a name with another protocol clashes",
		changes{withPorts(port("dns", 53))}, changes{withPorts(udp(port("dns", 53)))},
		"ports", `[{"name":"dns","protocol":"TCP","port":53}]`, "True PortConflict"},
	{"Service Port: no two ports have one name, the empty one included",
		changes{withPorts(port("", 80))}, changes{withPorts(port("", 81))},
		"ports", `[{"name":"tcp-80","protocol":"TCP","port":80},{"name":"tcp-81","protocol":"TCP","port":81}]`,
		"True PortConflict"},
	{"Service Port: the application protocol is the oldest's",
		changes{withPorts(app(port("http", 80), "kubernetes.io/h2c"))}, changes{withPorts(app(port("http", 80), "http"))},
		"ports", `[{"name":"http","protocol":"TCP","port":80,"appProtocol":"kubernetes.io/h2c"}]`, "True PortConflict"},
	{"Service Port: another order is no conflict",
		changes{withPorts(port("a", 1), port("b", 2))}, changes{withPorts(port("b", 2), port("a", 1))},
		"ports", `[{"name":"a","protocol":"TCP","port":1},{"name":"b","protocol":"TCP","port":2}]`, "False NoConflicts"},
	{"Headlessness: the oldest decides that it is not", nil, changes{headless},
		"type", `"ClusterSetIP"`, "True TypeConflict"},
	{"Headlessness: the oldest decides that it is", changes{headless}, nil,
		"type", `"Headless"`, "True TypeConflict"},
	{"Session Affinity: the oldest decides for it", changes{affinity(60)}, nil,
		"sessionAffinity", `"ClientIP"`, "True SessionAffinityConflict"},
	{"Session Affinity: the oldest decides against it", nil, changes{affinity(60)},
		"sessionAffinity", `"None"`, "True SessionAffinityConflict"},
	{"Session Affinity: the oldest decides how long it lasts", changes{affinity(60)}, changes{affinity(120)},
		"sessionAffinityConfig", `{"clientIP":{"timeoutSeconds":60}}`, "True SessionAffinityConfigConflict"},
	{"Labels: those of the oldest, and no others",
		changes{withLabels(map[string]string{"a": "1"})}, changes{withLabels(map[string]string{"b": "2"})},
		"labels", `{"a":"1"}`, "True LabelsConflict"},
	{"Labels: none, if the oldest exports none",
		nil, changes{withLabels(map[string]string{"b": "2"})}, "labels", ``, "True LabelsConflict"},
	{"Annotations: those of the oldest, and no others",
		changes{withAnnotations(map[string]string{"a": "1"})}, changes{withAnnotations(map[string]string{"a": "2"})},
		"annotations", `{"a":"1"}`, "True AnnotationsConflict"},
	{"InternalTrafficPolicy: that of the oldest", changes{settings(func(s *v1alpha1.ServiceSettings) {
		local := corev1.ServiceInternalTrafficPolicyLocal
		s.InternalTrafficPolicy = &local
	})}, nil, "internalTrafficPolicy", `"Local"`, "True InternalTrafficPolicyConflict"},
	{"InternalTrafficPolicy: the default, stated or not, is no conflict",
		changes{settings(func(s *v1alpha1.ServiceSettings) {
			cluster := corev1.ServiceInternalTrafficPolicyCluster
			s.InternalTrafficPolicy = &cluster
		})}, nil, "internalTrafficPolicy", `"Cluster"`, "False NoConflicts"},
	{"TrafficDistribution: that of the oldest", changes{settings(func(s *v1alpha1.ServiceSettings) {
		near := "PreferClose"
		s.TrafficDistribution = &near
	})}, nil, "trafficDistribution", `"PreferClose"`, "True TrafficDistributionConflict"},
	{"IPFamilies: the union, in the order of the oldest", changes{withFamilies("IPv6")}, changes{withFamilies("IPv4")},
		"ipFamilies", `["IPv6","IPv4"]`, "True IPFamilyConflict"},
	{"IPFamilies: another order is no conflict", changes{withFamilies("IPv6", "IPv4")},
		changes{withFamilies("IPv4", "IPv6")},
		"ipFamilies", `["IPv6","IPv4"]`, "False NoConflicts"},
	{"IPFamilies: a cluster whose type lost adds none", nil, changes{headless, withFamilies("IPv6")},
		"ipFamilies", `["IPv4"]`, "True TypeConflict,IPFamilyConflict"},
}

func TestKEP1645(t *testing.T) {
	for _, tt := range kep1645 {
		t.Run(tt.rule, func(t *testing.T) {
			d := decide(cluster(1, web(1, tt.c1...)), cluster(2, web(2, tt.c2...)), cluster(3))
			data, err := json.Marshal(d.Bundles["c3"].Imports[0].Settings)
			if err != nil {
				t.Fatal(err)
			}
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(data, &fields); err != nil {
				t.Fatal(err)
			}
			if got := string(fields[tt.field]); got != tt.want {
				t.Errorf("%s is %s, want %s", tt.field, got, tt.want)
			}
			// The condition is on all ServiceExports of the service.
			for _, c := range []string{"c1", "c2"} {
				if got := condition(d, c, "Conflict"); got != tt.conflict {
					t.Errorf("Conflict in %s is %s, want %s", c, got, tt.conflict)
				}
			}
		})
	}
}

// Precedence is by creationTimestamp from oldest to newest; of the same second, by the cluster's name.
func TestPrecedenceGoesFromOldestToNewest(t *testing.T) {
	created := func(minute int) func(*v1alpha1.Export) {
		return func(e *v1alpha1.Export) { e.CreatedAt = at(minute) }
	}
	ports := func(minutes ...int) string {
		var members []Member
		for n, minute := range minutes {
			members = append(members, cluster(n+1, web(n+1, withPorts(port("http", int32(80+n))), created(minute))))
		}
		d := decide(append(members, cluster(9))...)
		return portsText(&d.Bundles["c9"].Imports[0].Settings)
	}
	for _, tt := range []struct {
		name    string
		minutes []int
		want    string
	}{
		{"the oldest wins", []int{3, 1, 2}, "http:81/TCP"},
		{"ties go to the first name", []int{5, 5, 5}, "http:80/TCP"},
		{"a tie of the oldest two", []int{7, 5, 5}, "http:81/TCP"},
	} {
		if got := ports(tt.minutes...); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	second := decide(cluster(1, web(1)), cluster(2, web(2, withPorts(port("a", 1)))),
		cluster(3, web(3, withPorts(port("a", 2)))))
	if got := portsText(&second.Bundles["c1"].Imports[0].Settings); got != "a:1/TCP,http:80/TCP" {
		t.Errorf("of the two newer ports %s", got)
	}
}

// The condition goes with the conflict, and with the export that conflicts.
func TestConflictClears(t *testing.T) {
	other := web(2, withPorts(port("http", 81)))
	for _, tt := range []struct {
		name   string
		second []v1alpha1.Export
		want   string
	}{
		{"conflicting", []v1alpha1.Export{other}, "True PortConflict"},
		{"changed", []v1alpha1.Export{web(2)}, "False NoConflicts"},
		{"unexported", nil, "False NoConflicts"},
	} {
		if got := condition(decide(cluster(1, web(1)), cluster(2, tt.second...)), "c1", "Conflict"); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// All reasons are joined by commas, in one order, and the message names every field.
func TestReasonsAreJoined(t *testing.T) {
	d := decide(cluster(1, web(1)), cluster(2, web(2, headless, affinity(1), withLabels(map[string]string{"a": "1"}),
		withFamilies("IPv6"))))
	for _, c := range d.Bundles["c2"].ExportConditions {
		if c.Type != "Conflict" {
			continue
		}
		if c.Reason != "TypeConflict,SessionAffinityConflict,LabelsConflict,IPFamilyConflict" ||
			c.Status != metav1.ConditionTrue {
			t.Errorf("%s %s", c.Status, c.Reason)
		}
		for _, field := range []string{"type: c2 (Headless)", "sessionAffinity: c2 (ClientIP)", "exportedLabels: c2",
			"ipFamilies: c2 (IPv6)"} {
			if !strings.Contains(c.Message, field) {
				t.Errorf("%q does not name %s", c.Message, field)
			}
		}
	}
}
