// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// offlineObjects are those of c1, which imports cart by its ClusterSetIP, db headless and api in ClusterIP mode from c2
// and c3, and reaches c2 alone.
func offlineObjects() Objects {
	api := clusterIP("api",
		v1alpha1.ImportCluster{Cluster: "c2", Ports: []string{"http"}, ClusterIPs: []string{"10.99.0.3"},
			Backends: group(ready("10.9.1.3", ""))},
		v1alpha1.ImportCluster{Cluster: "c3", Ports: []string{"http"}, ClusterIPs: []string{"10.100.0.3"},
			Backends: group(ready("10.10.1.3", ""))})
	api.Mode = v1alpha1.ServiceModeClusterIP
	imported := func(name string, kind mcsv1beta1.ServiceImportType, ips ...string) mcsv1beta1.ServiceImport {
		return mcsv1beta1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: name, Labels: ownLabels(name)},
			Spec:       mcsv1beta1.ServiceImportSpec{Type: kind, IPs: ips}}
	}
	foreign := imported("theirs", mcsv1beta1.ClusterSetIP, "10.88.7.7")
	foreign.Labels = nil
	return Objects{
		Peering: peering("c1", v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}}),
		Bundles: []v1alpha1.Bundle{*bundle("bundle-0", clusterIP("cart", exporter("c2", "10.99.0.1")),
			headless("db", withBackends("c2", ready("10.9.1.2", "db-0")), withBackends("c3", ready("10.10.1.2", "db-0"))), api)},
		Gateways: []v1alpha1.Gateway{*gateway("c1-gw", map[string]v1alpha1.ConnectionStatus{
			"c2": v1alpha1.ConnectionConnected, "c3": v1alpha1.ConnectionError})},
		ServiceImports: []mcsv1beta1.ServiceImport{imported("cart", mcsv1beta1.ClusterSetIP, "10.88.0.1"),
			imported("db", mcsv1beta1.Headless), imported("api", mcsv1beta1.ClusterSetIP), foreign},
	}
}

// TestOfflineAnswersAreThePlugins: what the plugin answers that has watched the same objects.
func TestOfflineAnswersAreThePlugins(t *testing.T) {
	o := offlineObjects()
	offline := NewOffline(o, time.Now())
	x := newIndex(nil)
	x.setPeering(o.Peering)
	for i := range o.Bundles {
		x.setBundle(&o.Bundles[i])
	}
	for i := range o.ServiceImports {
		if s := parseServiceImport(&o.ServiceImports[i]); s.own {
			x.setServiceImport(s)
		}
	}
	for i := range o.Gateways {
		x.setGateway(&o.Gateways[i])
	}
	plugin := serve(t, x)
	for name, want := range map[string][]string{
		"cart.sample.svc.clusterset.local":        {"10.88.0.1"},
		"c2.cart.sample.svc.clusterset.local":     {"10.99.0.1"},
		"db.sample.svc.clusterset.local":          {"10.9.1.2"},
		"c3.db.sample.svc.clusterset.local":       nil, // disconnected
		"api.sample.svc.clusterset.local":         {"10.99.0.3"},
		"theirs.sample.svc.clusterset.local":      nil, // not Sealane's
		"none.sample.svc.clusterset.local":        nil,
		"db-0.c2.db.sample.svc.clusterset.local.": {"10.9.1.2"},
	} {
		reply := offline.Answer(name, dns.TypeA)
		if reply == nil {
			t.Errorf("%s: no reply", name)
			continue
		}
		if got := answered(reply); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		query := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA)
		q := parseName(query.Question[0].Name, plugin.current.Load().zones)
		served, _ := plugin.answer(plugin.current.Load(), &q, unlimited{}, query)
		if served.Rcode != reply.Rcode || !slices.Equal(answered(&served.Msg), answered(reply)) {
			t.Errorf("%s: the plugin answers %s, offline it is %s", name, served.String(), reply.String())
		}
	}
	if reply := offline.Answer("www.example.org", dns.TypeA); reply != nil {
		t.Errorf("a name of no zone is answered: %s", reply)
	}
}

func answered(reply *dns.Msg) []string {
	var out []string
	for _, rr := range reply.Answer {
		if a, is := rr.(*dns.A); is {
			out = append(out, a.A.String())
		}
	}
	slices.Sort(out)
	return out
}

// TestTurnsOfClusters: a service in ClusterIP mode has those that are connected, and no other name has any.
func TestTurnsOfClusters(t *testing.T) {
	o := offlineObjects()
	for _, c := range []struct {
		name string
		want map[string]int
	}{
		{"api.sample.svc.clusterset.local", map[string]int{"c2": 1}},
		{"cart.sample.svc.clusterset.local", nil},
		{"c2.api.sample.svc.clusterset.local", nil},
		{"none.sample.svc.clusterset.local", nil},
	} {
		if got := NewOffline(o, time.Now()).Turns(c.name, dns.TypeA); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	o.Gateways[0].Status.Connections = nil
	got := NewOffline(o, time.Now()).Turns("api.sample.svc.clusterset.local", dns.TypeA)
	if want := map[string]int{"c2": 1, "c3": 1}; !maps.Equal(got, want) {
		t.Errorf("with both connected: %v, want %v", got, want)
	}
}
