// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/dnspath"
	"github.com/sealane-io/sealane/memberagent/cluster/clusterdns"
)

const (
	corefileFlag     = "--coredns-configmap="
	dnsName          = "sealane-dns"
	clusterAgentName = "sealane-cluster-agent"
)

// follow gathers what is known about a name in a member and follows it.
func (d *diagnose) follow(ctx context.Context, karmada *api, f *fleet, m *fleetMember,
	name dnspath.Name) ([]dnspath.Step, error) {
	c, err := d.at[m.Name], error(nil)
	if c == nil {
		c, err = d.reach(ctx, karmada, &m.Member)
	}
	if err == nil && m.err != nil {
		err = m.err
	}
	if err != nil {
		return []dnspath.Step{{
			Name: "member", Verdict: dnspath.Broken, Expected: "to reach the API server of " + m.Name + ", to look around there",
			Found:  refusal(err) + ": " + err.Error(),
			Remedy: "add a kubeconfig context named " + m.Name + ", or look from another member with -C",
		}}, nil
	}
	facts := &dnspath.Facts{
		Cluster: m.Name, Kubectl: "kubectl --context " + c.context, Plugin: d.invocation, Now: f.now, Name: name,
		Gateways: m.gateways, Namespaces: m.services.namespaces,
	}
	f.tell(facts, m)
	ctx, cancel := context.WithTimeout(ctx, 4*d.memberTimeout)
	defer cancel()
	if err := lookAround(ctx, c, facts); err != nil {
		return nil, fmt.Errorf("look around in %s: %w", m.Name, err)
	}
	if facts.Peering != nil {
		c.askAround(ctx, facts)
	}
	return dnspath.Follow(facts), nil
}

// tell fills in what the fleet knows: exports everywhere, the policy, and the import's objects.
func (f *fleet) tell(facts *dnspath.Facts, m *fleetMember) {
	n := &facts.Name
	for i := range f.members {
		if f.members[i].Spec.ClusterSet == m.Spec.ClusterSet {
			facts.Members = append(facts.Members, f.members[i].Name)
		}
	}
	for _, row := range serviceRows(f) {
		if row.Namespace == n.Namespace && row.Name == n.Service {
			if row.Policy != nil {
				facts.Importers = row.Policy.Importers
			}
			for _, e := range row.Clusters {
				facts.Exports = append(facts.Exports, exportFact(e))
			}
			continue
		}
		if len(row.ExportedBy) > 0 && (row.Namespace == n.Namespace || row.Name == n.Service) {
			facts.Similar = append(facts.Similar, row.Name+"."+row.Namespace)
		}
	}
	facts.Wanted = bundleIn(m.bundles, n.Namespace, n.Service, f.shards(m.Spec.ClusterSet))
	for i := range m.services.imports {
		if im := &m.services.imports[i]; im.Namespace == n.Namespace && im.Name == n.Service {
			facts.ServiceImport = im
		}
	}
	for i := range m.services.slices {
		if s := m.services.slices[i]; s.Namespace == n.Namespace && s.Labels[mcsv1beta1.LabelServiceName] == n.Service {
			facts.Slices = append(facts.Slices, s)
		}
	}
}

// bundleIn returns the Bundle that has the import of a service, of those of a member; nil where it is not there.
func bundleIn(bundles []v1alpha1.Bundle, namespace, service string, shards int32) *v1alpha1.Bundle {
	named := func(name string) *v1alpha1.Bundle {
		if i := slices.IndexFunc(bundles, func(b v1alpha1.Bundle) bool { return b.Name == name }); i >= 0 {
			return &bundles[i]
		}
		return nil
	}
	own := named(v1alpha1.BundleName(v1alpha1.Shard(namespace, service, shards)))
	if own == nil {
		return nil
	}
	return named(v1alpha1.BundleOf(own, namespace, service))
}

func exportFact(e exportRow) dnspath.Export {
	out := dnspath.Export{Cluster: e.Cluster, Exported: e.State == stateExported, Message: e.Message, Ready: -1}
	if e.ReadyBackends != nil {
		out.Ready = *e.ReadyBackends
	}
	if e.Scope != v1alpha1.ScopeAll {
		out.Scope = e.Scope
	}
	return out
}

// lookAround reads what else decides in the member. Where there is no Peering, nothing does.
func lookAround(ctx context.Context, c client.Reader, facts *dnspath.Facts) error {
	if err := readPeering(ctx, c, facts); err != nil || facts.Peering == nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return readClusterDNS(ctx, c, facts) })
	g.Go(func() error { return readSealaneDNS(ctx, c, facts) })
	g.Go(func() error { return readDerived(ctx, c, facts) })
	return g.Wait()
}

// askAround asks the member's own DNS, and Sealane's.
func (a *api) askAround(ctx context.Context, facts *dnspath.Facts) {
	asked := serviceOf(facts.ClusterDNS.Found)
	var both sync.WaitGroup
	both.Go(func() { facts.Answers = a.answers(ctx, asked, facts) })
	both.Go(func() { facts.Direct = a.answers(ctx, sealaneDNS(), facts) })
	both.Wait()
}

func sealaneDNS() client.ObjectKey {
	return client.ObjectKey{Namespace: v1alpha1.Namespace, Name: dnsName}
}

// readPeering reads the Peering and the Bundle that carries the service, with imports as they are now.
func readPeering(ctx context.Context, c client.Reader, facts *dnspath.Facts) error {
	var peering v1alpha1.Peering
	if found, err := find(ctx, c, client.ObjectKey{Name: v1alpha1.PeeringName}, &peering); err != nil || !found {
		return err
	}
	facts.Peering = &peering
	n := &facts.Name
	named := func(name string) (*v1alpha1.Bundle, error) {
		var bundle v1alpha1.Bundle
		if found, err := find(ctx, c, client.ObjectKey{Name: name}, &bundle); err != nil || !found {
			return nil, err
		}
		return &bundle, nil
	}
	bundle, err := named(v1alpha1.BundleName(v1alpha1.Shard(n.Namespace, n.Service, peering.Spec.Shards)))
	if err != nil || bundle == nil {
		return err
	}
	if half := v1alpha1.BundleOf(bundle, n.Namespace, n.Service); half != bundle.Name {
		if half == "" {
			return nil
		}
		if bundle, err = named(half); err != nil || bundle == nil {
			return err
		}
	}
	now, err := asNow([]v1alpha1.Bundle{*bundle}, named)
	if err == nil {
		facts.Bundle = &now[0]
	}
	return err
}

// find reads an object that need not be there.
func (a *api) find(ctx context.Context, key client.ObjectKey, object client.Object) (bool, error) {
	return find(ctx, a, key, object)
}

func find(ctx context.Context, c client.Reader, key client.ObjectKey, object client.Object) (bool, error) {
	err := c.Get(ctx, key, object)
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get %T %s: %w", object, strings.TrimPrefix(key.String(), "/"), err)
	}
	return true, nil
}

// readClusterDNS finds what configures the cluster's DNS, as the cluster agent does, and whether that runs.
func readClusterDNS(ctx context.Context, c client.Reader, facts *dnspath.Facts) error {
	var agent appsv1.Deployment
	found, err := find(ctx, c, client.ObjectKey{Namespace: v1alpha1.Namespace, Name: clusterAgentName}, &agent)
	if err != nil {
		return err
	}
	if found {
		facts.Agent = workload(&agent)
	}
	d := &facts.ClusterDNS
	d.Wiring = clusterdns.Wiring{ConfigMap: configMapOf(&agent), Service: sealaneDNS()}
	if d.Found, err = d.Wiring.Find(ctx, c); err != nil {
		return fmt.Errorf("look for what configures the cluster's DNS: %w", err)
	}
	if d.Service = d.Found.Service; d.Service == "" {
		return nil
	}
	d.Ready, err = readyBehind(ctx, c, serviceOf(d.Found))
	return err
}

// configMapOf is the ConfigMap that the cluster agent is told to edit; without a name, it looks for one.
func configMapOf(agent *appsv1.Deployment) client.ObjectKey {
	var key client.ObjectKey
	for i := range agent.Spec.Template.Spec.Containers {
		for _, arg := range agent.Spec.Template.Spec.Containers[i].Args {
			value, is := strings.CutPrefix(arg, corefileFlag)
			if namespace, name, ok := strings.Cut(value, "/"); is && ok {
				key = client.ObjectKey{Namespace: namespace, Name: name}
			}
		}
	}
	return key
}

func workload(d *appsv1.Deployment) dnspath.Workload {
	out := dnspath.Workload{Name: client.ObjectKeyFromObject(d).String(), Ready: int(d.Status.ReadyReplicas), Desired: 1}
	if d.Spec.Replicas != nil {
		out.Desired = int(*d.Spec.Replicas)
	}
	return out
}

// readyBehind counts the ready endpoints of a Service: of both families, those of the one with more.
func readyBehind(ctx context.Context, c client.Reader, service client.ObjectKey) (int, error) {
	var list discoveryv1.EndpointSliceList
	err := c.List(ctx, &list, client.InNamespace(service.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: service.Name})
	if err != nil {
		return 0, fmt.Errorf("list endpoints of Service %s: %w", service, err)
	}
	counts := map[discoveryv1.AddressType]int{}
	for i := range list.Items {
		for _, e := range list.Items[i].Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				counts[list.Items[i].AddressType]++
			}
		}
	}
	return max(counts[discoveryv1.AddressTypeIPv4], counts[discoveryv1.AddressTypeIPv6]), nil
}

func readSealaneDNS(ctx context.Context, c client.Reader, facts *dnspath.Facts) error {
	var service corev1.Service
	found, err := find(ctx, c, sealaneDNS(), &service)
	if err != nil {
		return err
	}
	if ip, err := netip.ParseAddr(service.Spec.ClusterIP); found && err == nil {
		facts.DNS.IP = ip
	}
	var d appsv1.Deployment
	if found, err = find(ctx, c, sealaneDNS(), &d); err != nil || !found {
		return err
	}
	facts.DNS.Workload = workload(&d)
	facts.DNS.Ready, err = readyBehind(ctx, c, sealaneDNS())
	return err
}

// readDerived finds the derived Service of the import.
func readDerived(ctx context.Context, c client.Reader, facts *dnspath.Facts) error {
	n := &facts.Name
	if n.Kind == dnspath.Version {
		return nil
	}
	var list corev1.ServiceList
	derived := client.MatchingLabels{v1alpha1.LabelImport: n.Service}
	if err := c.List(ctx, &list, client.InNamespace(n.Namespace), derived); err != nil {
		return fmt.Errorf("list the derived Service: %w", err)
	}
	if len(list.Items) > 0 {
		facts.Derived = &list.Items[0]
	}
	return nil
}

// answers asks a DNS for every record that the name may have.
func (a *api) answers(ctx context.Context, service client.ObjectKey, facts *dnspath.Facts) dnspath.Answers {
	types := []uint16{dns.TypeA, dns.TypeAAAA}
	switch {
	case facts.Name.Kind == dnspath.Version:
		types = []uint16{dns.TypeTXT}
	case facts.Name.Protocol != "":
		types = []uint16{dns.TypeSRV}
	}
	replies, err := a.ask(ctx, service, dns.Fqdn(facts.Name.FQDN), types...)
	if not := (*unasked)(nil); errors.As(err, &not) {
		return dnspath.Answers{Unasked: not.Error()}
	}
	if err != nil {
		return dnspath.Answers{Err: err.Error()}
	}
	var out dnspath.Answers
	for _, reply := range replies {
		if out.Rcode == "" || reply.Rcode != dns.RcodeSuccess {
			out.Rcode = dns.RcodeToString[reply.Rcode]
		}
		for _, record := range reply.Answer {
			out.Records = append(out.Records, recordText(record))
		}
	}
	slices.Sort(out.Records)
	return out
}

func recordText(record dns.RR) string {
	switch r := record.(type) {
	case *dns.A:
		return r.A.String()
	case *dns.AAAA:
		return r.AAAA.String()
	case *dns.SRV:
		return strings.TrimSuffix(r.Target, ".") + ":" + strconv.Itoa(int(r.Port))
	case *dns.TXT:
		return strconv.Quote(strings.Join(r.Txt, ""))
	}
	return record.String()
}
