// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestBackendsAreText: what is written, and that it is read again as it was.
func TestBackendsAreText(t *testing.T) {
	for want, b := range map[string]Backend{
		`"10.1.0.7"`: {IP: "10.1.0.7", Ready: true, Serving: true},
		`"fd00::7 node=worker-1 zone=eu-1 hostname=db-0 globalIP=242.0.0.7"`: {IP: "fd00::7", Node: "worker-1", Zone: "eu-1",
			Hostname: "db-0", GlobalIP: "242.0.0.7", Ready: true, Serving: true},
		`"10.1.0.7 notReady"`:                        {IP: "10.1.0.7", Serving: true},
		`"10.1.0.7 notReady notServing terminating"`: {IP: "10.1.0.7", Terminating: true},
		// What is not words is not taken for such.
		`{"ip":"","ready":true,"serving":true,"terminating":false}`: {Ready: true, Serving: true},
		`{"ip":"10.1.0.7","zone":"a notReady","ready":true,"serving":true,"terminating":false}`: {IP: "10.1.0.7",
			Zone: "a notReady", Ready: true, Serving: true},
		`{"ip":"10.1.0.7","node":"a=b","ready":false,"serving":false,"terminating":false}`: {IP: "10.1.0.7", Node: "a=b"},
		`{"ip":"10.1.0.7","zone":"ä\"","ready":false,"serving":false,"terminating":false}`: {IP: "10.1.0.7", Zone: `ä"`},
	} {
		raw, err := json.Marshal(b)
		if err != nil || string(raw) != want {
			t.Errorf("%+v is %s, %v, want %s", b, raw, err, want)
		}
		got := Backend{Zone: "of before"}
		if err := json.Unmarshal([]byte(want), &got); want[0] == '"' && (err != nil || got != b) {
			t.Errorf("%s is read as %+v, %v", want, got, err)
		}
	}
	for want, p := range map[string]BackendPort{
		`"http 8080/TCP"`: {Name: "http", Protocol: corev1.ProtocolTCP, Port: 8080},
		`"53/UDP"`:        {Protocol: corev1.ProtocolUDP, Port: 53},
		`"0/SCTP"`:        {Protocol: corev1.ProtocolSCTP},
		`{"name":"a b","protocol":"TCP","port":1}`: {Name: "a b", Protocol: corev1.ProtocolTCP, Port: 1},
		`{"protocol":"","port":1}`:                 {Port: 1},
	} {
		raw, err := json.Marshal(p)
		if err != nil || string(raw) != want {
			t.Errorf("%+v is %s, %v, want %s", p, raw, err, want)
		}
		var got BackendPort
		if err := json.Unmarshal([]byte(want), &got); err != nil || got != p {
			t.Errorf("%s is read as %+v, %v", want, got, err)
		}
	}
}

// TestObjectsAreReadAsBackends: as earlier versions write them, beside text.
func TestObjectsAreReadAsBackends(t *testing.T) {
	var got Backends
	err := json.Unmarshal([]byte(`{"ports":[{"name":"http","protocol":"TCP","port":8080},"dns 53/UDP"],"addresses":[
		{"ip":"10.1.0.7","zone":"a","ready":true,"serving":true,"terminating":false},"10.1.0.8 zone=b"]}`), &got)
	want := Backends{
		Ports: []BackendPort{{"http", corev1.ProtocolTCP, 8080}, {"dns", corev1.ProtocolUDP, 53}},
		Addresses: []Backend{{IP: "10.1.0.7", Zone: "a", Ready: true, Serving: true},
			{IP: "10.1.0.8", Zone: "b", Ready: true, Serving: true}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// FuzzBackendText: whatever a member writes is read without a panic, and what was read of text is written so that it is
// read as the same.
func FuzzBackendText(f *testing.F) {
	for _, seed := range []string{`"10.1.0.7 node=a zone=b notReady"`, `"http 8080/TCP"`, `"=  = ="`,
		`"a\u0020b c=d=e"`, `{"ip":" "}`, `null`, `"`, `""`, `"\"`, `" 1/"`, `"http 99999999999/TCP"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var b, again Backend
		if json.Unmarshal(data, &b) == nil {
			raw, err := json.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(raw, &again); err != nil || again != b {
				t.Errorf("%q is read as %+v, written as %s, and that is read as %+v, %v", data, b, raw, again, err)
			}
		}
		var p, second BackendPort
		if json.Unmarshal(data, &p) == nil {
			raw, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(raw, &second); err != nil || second != p {
				t.Errorf("%q is read as %+v, written as %s, and that is read as %+v, %v", data, p, raw, second, err)
			}
		}
	})
}
