// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"net"
	"time"

	"github.com/miekg/dns"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Objects are all that answers depend on, as the API server of one cluster holds them.
type Objects struct {
	Peering        *v1alpha1.Peering
	Bundles        []v1alpha1.Bundle
	Gateways       []v1alpha1.Gateway
	ServiceImports []mcsv1beta1.ServiceImport
}

// Offline answers as the plugin does that watches these objects at one time. It asks nobody and listens nowhere.
type Offline struct{ plugin Lighthouse }

// NewOffline returns what the plugin answers of objects at a time. Unlike the plugin it has no past: a cluster whose
// tunnels are being set up anew at that time is disconnected.
func NewOffline(o Objects, now time.Time) *Offline {
	x := newIndex(nil)
	if o.Peering != nil {
		x.setPeering(o.Peering)
	}
	for i := range o.Gateways {
		g := &o.Gateways[i]
		x.gateways[g.Name] = *g
	}
	for i := range o.ServiceImports {
		if s := parseServiceImport(&o.ServiceImports[i]); s.own {
			x.setServiceImport(s)
		}
	}
	for i := range o.Bundles {
		x.setBundle(&o.Bundles[i])
	}
	out := &Offline{}
	s, _ := x.snapshot(now, true)
	out.plugin.current.Store(s)
	return out
}

// Answer returns the reply to a question of class IN as a client gets it by TCP, or nil where the name is in no zone.
// Of several addresses any may come first, and a service in ClusterIP mode is answered with another cluster each time.
func (o *Offline) Answer(name string, rrtype uint16) *dns.Msg {
	query := new(dns.Msg).SetQuestion(dns.Fqdn(name), rrtype)
	s := o.plugin.current.Load()
	q := parseName(query.Question[0].Name, s.zones)
	if q.kind == nameOutside {
		return nil
	}
	r, _ := o.plugin.answer(s, &q, unlimited{}, query)
	if r == nil {
		return nil
	}
	return &r.Msg
}

// Turns returns how often, of so many queries as it takes until all begins anew, a service in ClusterIP mode is
// answered with each cluster. It is nil for every other name.
func (o *Offline) Turns(name string, rrtype uint16) map[string]int {
	s := o.plugin.current.Load()
	q := parseName(dns.Fqdn(name), s.zones)
	svc := s.services[q.service]
	if q.kind != nameService || svc == nil || !svc.clusterIPMode {
		return nil
	}
	out := map[string]int{}
	for _, place := range svc.balance.of(rrtype == dns.TypeAAAA).turns {
		out[svc.clusters[place].name]++
	}
	return out
}

// unlimited is a client that takes replies of any size. Nothing is written to it.
type unlimited struct{ dns.ResponseWriter }

// RemoteAddr is of TCP, over which no reply is truncated.
func (unlimited) RemoteAddr() net.Addr { return &net.TCPAddr{} }
