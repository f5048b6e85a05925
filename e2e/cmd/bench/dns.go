// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/apiserver"
)

const (
	dnsShards = 16
	// dnsPods are the backends of a headless service.
	dnsPods = 3
	// dnsAim is the least ratio of queries per second to the stock plugin.
	dnsAim = 1.1
)

// dnsRow compares two servers of the same binary: Sealane's plugin and CoreDNS's own.
type dnsRow struct {
	Imports int
	Kind    string
	// Ours and Stock have an element per round.
	Ours, Stock []dnsLoad
}

// Ratio of the queries per second.
func (r dnsRow) Ratio() float64 { return ratio(rates(r.Ours), rates(r.Stock)) }

// Met says whether the aim is.
func (r dnsRow) Met() bool { return r.Ratio() >= dnsAim }

// dnsMemory is the resident memory of the two servers with so many imports, in kilobytes.
type dnsMemory struct{ Imports, Ours, Stock int }

// dnsBench measures both servers on the same objects of one API server, in turns.
func dnsBench(ctx context.Context, sizes []int, rounds int, duration time.Duration) ([]dnsRow, []dnsMemory, error) {
	ownCRDs, err := apiserver.CRDs() //nolint:contextcheck // it asks the go command
	if err != nil {
		return nil, nil, err
	}
	mcsCRDs, err := apiserver.MCSCRDs() //nolint:contextcheck // it asks the go command
	if err != nil {
		return nil, nil, err
	}
	server, err := apiserver.Launch(ctx, ownCRDs, mcsCRDs)
	if err != nil {
		return nil, nil, fmt.Errorf("start an API server: %w", err)
	}
	defer server.Stop()
	objects, err := newImports(ctx, server.Config)
	if err != nil {
		return nil, nil, err
	}
	servers, err := startDNS(ctx, server.Config)
	if err != nil {
		return nil, nil, err
	}
	defer servers.stop()
	var rows []dnsRow
	var used []dnsMemory
	for _, size := range sizes {
		if err := objects.grow(ctx, size); err != nil {
			return rows, used, err
		}
		for _, kind := range []v1alpha1.ServiceType{v1alpha1.ClusterSetIP, v1alpha1.Headless} {
			row, err := measureDNS(ctx, servers, kind, size, rounds, duration)
			if err != nil {
				return rows, used, err
			}
			rows = append(rows, row)
		}
		used = append(used, dnsMemory{Imports: size, Ours: servers.ours.rss(), Stock: servers.stock.rss()})
	}
	return rows, used, nil
}

func measureDNS(ctx context.Context, servers *dnsServers, kind v1alpha1.ServiceType, size, rounds int,
	duration time.Duration) (dnsRow, error) {
	row := dnsRow{Imports: size, Kind: string(kind)}
	var names []string
	for i := range size {
		if kindOf(i) == kind {
			names = append(names, fmt.Sprintf("%s.bench.svc.clusterset.local.", importName(i)))
		}
	}
	for _, s := range []*dnsServer{servers.ours, servers.stock} {
		if err := s.answers(ctx, names[len(names)-1]); err != nil {
			return row, err
		}
	}
	for range rounds {
		for _, of := range []struct {
			server *dnsServer
			loads  *[]dnsLoad
		}{{servers.stock, &row.Stock}, {servers.ours, &row.Ours}} {
			load, err := of.server.load(ctx, names, duration)
			if err != nil {
				return row, err
			}
			fmt.Printf("%d imports, %s, %s: %.0f queries/s, p99 %s\n", size, kind, of.server.name, load.Rate, load.P99)
			*of.loads = append(*of.loads, load)
		}
	}
	return row, nil
}

// imports are the objects of a member that imports services of c2: as many with a ClusterSetIP as headless.
type imports struct {
	client client.Client
	count  int
}

func kindOf(i int) v1alpha1.ServiceType {
	if i%2 == 0 {
		return v1alpha1.ClusterSetIP
	}
	return v1alpha1.Headless
}

func importName(i int) string { return fmt.Sprintf("service-%d", i) }

func newImports(ctx context.Context, config *rest.Config) (*imports, error) {
	scheme := runtime.NewScheme()
	err := errors.Join(corev1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		mcs.Install(scheme))
	if err != nil {
		return nil, fmt.Errorf("build scheme: %w", err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bench"}},
		&v1alpha1.Peering{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName},
			Spec: v1alpha1.PeeringSpec{
				ClusterID: "c1", DNS: v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}}, Phase: v1alpha1.MemberActive,
				Shards:         dnsShards,
				Cable:          v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800},
				HealthCheck:    v1alpha1.HealthCheckSpec{IntervalMilliseconds: 250, FailureThreshold: 4},
				RemoteClusters: []v1alpha1.RemoteCluster{}, Conditions: []metav1.Condition{},
			},
		},
	}
	gateway := &v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	for _, o := range append(objects, gateway) {
		if err := c.Create(ctx, o); err != nil {
			return nil, fmt.Errorf("create %T: %w", o, err)
		}
	}
	gateway.Status = v1alpha1.GatewayStatus{
		HAState: v1alpha1.GatewayActive, ReportedAt: ptr.To(metav1.Now()),
		Connections: []v1alpha1.Connection{{Cluster: "c2", Status: v1alpha1.ConnectionConnected}},
	}
	if err := c.Status().Update(ctx, gateway); err != nil {
		return nil, fmt.Errorf("report the gateway: %w", err)
	}
	return &imports{client: c}, nil
}

// grow creates more, until there are so many.
func (m *imports) grow(ctx context.Context, count int) error {
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i := m.count; i < count; i++ {
		g.Go(func() error { return m.createImport(inner, i) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	m.count = count
	for shard := range int32(dnsShards) {
		if err := m.putBundle(ctx, shard); err != nil {
			return err
		}
	}
	return nil
}

// createImport makes what both servers read: a ServiceImport, and an EndpointSlice if it is headless.
func (m *imports) createImport(ctx context.Context, i int) error {
	s := &mcs.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Name: importName(i), Namespace: "bench", Labels: map[string]string{
			v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelImport: importName(i)}},
		Spec: mcs.ServiceImportSpec{
			Type: mcs.ServiceImportType(kindOf(i)), Ports: []mcs.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP,
				Port: 80}},
		},
	}
	if kindOf(i) == v1alpha1.ClusterSetIP {
		s.Spec.IPs = []string{fmt.Sprintf("10.96.%d.%d", i/250, 1+i%250)}
	}
	if err := m.client.Create(ctx, s); err != nil {
		return fmt.Errorf("create ServiceImport %s: %w", s.Name, err)
	}
	if kindOf(i) == v1alpha1.ClusterSetIP {
		return nil
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.Name, Namespace: s.Namespace, Labels: map[string]string{mcs.LabelServiceName: s.Name,
				mcs.LabelSourceCluster: "c2"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP),
			Port: ptr.To[int32](8080)}},
	}
	for _, ip := range podIPs(i) {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		})
	}
	if err := m.client.Create(ctx, slice); err != nil {
		return fmt.Errorf("create EndpointSlice %s: %w", slice.Name, err)
	}
	return nil
}

func podIPs(i int) []string {
	ips := make([]string, 0, dnsPods)
	for pod := range dnsPods {
		n := dnsPods*i + pod
		ips = append(ips, fmt.Sprintf("10.%d.%d.%d", 128+n/62500, n/250%250, 1+n%250))
	}
	return ips
}

// putBundle writes what only Sealane's server reads.
func (m *imports) putBundle(ctx context.Context, shard int32) error {
	b := &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.BundleName(shard)}}
	if err := client.IgnoreNotFound(m.client.Get(ctx, client.ObjectKeyFromObject(b), b)); err != nil {
		return fmt.Errorf("get Bundle %s: %w", b.Name, err)
	}
	b.Spec.Revision++
	b.Spec.Shard, b.Spec.Imports, b.Spec.ExportConditions = shard, []v1alpha1.Import{}, []v1alpha1.ExportCondition{}
	for i := range m.count {
		if v1alpha1.Shard("bench", importName(i), dnsShards) == shard {
			b.Spec.Imports = append(b.Spec.Imports, bundled(i))
		}
	}
	var err error
	if b.ResourceVersion == "" {
		err = m.client.Create(ctx, b)
	} else {
		err = m.client.Update(ctx, b)
	}
	if err != nil {
		return fmt.Errorf("write Bundle %s: %w", b.Name, err)
	}
	return nil
}

func bundled(i int) v1alpha1.Import {
	c := v1alpha1.ImportCluster{
		Cluster: "c2", CreatedAt: metav1.Now(), Ports: []string{"http"}, ClusterIPs: []string{},
		Backends: []v1alpha1.Backends{},
	}
	if kindOf(i) == v1alpha1.ClusterSetIP {
		c.ClusterIPs = []string{fmt.Sprintf("10.99.%d.%d", i/250, 1+i%250)}
	} else {
		backends := v1alpha1.Backends{Ports: []v1alpha1.BackendPort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 8080}}}
		for _, ip := range podIPs(i) {
			backends.Addresses = append(backends.Addresses, v1alpha1.Backend{IP: ip, Ready: true, Serving: true})
		}
		c.Backends = append(c.Backends, backends)
	}
	return v1alpha1.Import{
		Namespace: "bench", Name: importName(i), Clusters: []v1alpha1.ImportCluster{c},
		Settings: v1alpha1.ServiceSettings{
			Type: kindOf(i), SessionAffinity: corev1.ServiceAffinityNone, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}
