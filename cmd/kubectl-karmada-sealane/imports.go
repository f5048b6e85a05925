// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Where an importRow comes from.
const (
	// sourceMember: from the member's own API server.
	sourceMember = "member"
	// sourceBroker: from what the broker has the member import, which could not be asked itself.
	sourceBroker = "broker"
)

// importRow is a service in one member that imports it, or should.
type importRow struct {
	Cluster   string   `json:"cluster"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Type      string   `json:"type"`
	Mode      string   `json:"mode,omitempty"`
	IPs       []string `json:"ips,omitempty"`
	Ports     []string `json:"ports,omitempty"`
	// From are the clusters that export it to this one.
	From []string `json:"from,omitempty"`
	// Endpoints are the ready ones by the cluster that they are in. From the broker they are all that the
	// member may choose from, from the member those that it has chosen.
	Endpoints map[string]int `json:"endpoints,omitempty"`
	Ready     string         `json:"ready"`
	Message   string         `json:"message,omitempty"`
	Source    string         `json:"source"`
	presence  presence
}

// presence says whether the service can be used in the member.
type presence int

const (
	// importAbsent: there is no ServiceImport of Sealane's, or one that is not Ready.
	importAbsent presence = iota
	importPresent
	importUnknown
)

// problem says whether the message needs a person: that a member could not be asked is said once, of the member.
func (r *importRow) problem() bool {
	switch {
	case r.Message == "" || r.presence == importUnknown:
		return false
	case r.Source == sourceBroker:
		return r.presence == importAbsent
	}
	return true
}

func (r importRow) cells() []string {
	var endpoints []string
	for _, cluster := range slices.Sorted(maps.Keys(r.Endpoints)) {
		endpoints = append(endpoints, fmt.Sprintf("%s=%d", cluster, r.Endpoints[cluster]))
	}
	return []string{
		r.Cluster, r.Namespace, r.Name, r.Type, list(r.IPs), list(r.From), list(endpoints), r.Ready, r.Message,
		r.Mode, list(r.Ports), r.Source,
	}
}

func importTable(f *fleet) table {
	t := newTable("imports", importRows(f), 9,
		strings.Fields("CLUSTER NAMESPACE NAME TYPE IPS FROM ENDPOINTS READY MESSAGE MODE PORTS SOURCE")...)
	t.within = f.within()
	return t
}

// importRows are the imports of each member: what the broker wants there, and what is.
func importRows(f *fleet) []importRow {
	var rows []importRow
	for i := range f.members {
		rows = append(rows, memberImports(f, &f.members[i])...)
	}
	return rows
}

func memberImports(f *fleet, m *fleetMember) []importRow {
	rows := map[string]*importRow{}
	for i := range m.bundles {
		for j := range m.bundles[i].Spec.Imports {
			im := &m.bundles[i].Spec.Imports[j]
			if f.namespace == "" || f.namespace == im.Namespace {
				rows[im.Namespace+"/"+im.Name] = wantedImport(m, &m.bundles[i], im)
			}
		}
	}
	if m.services != nil {
		for i := range m.services.imports {
			im := &m.services.imports[i]
			if f.namespace != "" && f.namespace != im.Namespace {
				continue
			}
			key := im.Namespace + "/" + im.Name
			rows[key] = presentImport(m, im, rows[key])
		}
	}
	sorted := make([]importRow, 0, len(rows))
	for _, key := range slices.SortedFunc(maps.Keys(rows), strings.Compare) {
		sorted = append(sorted, *rows[key])
	}
	return sorted
}

// wantedImport is an import as the broker wants it, not seen in the member.
func wantedImport(m *fleetMember, b *v1alpha1.Bundle, im *v1alpha1.Import) *importRow {
	row := &importRow{
		Cluster: m.Name, Namespace: im.Namespace, Name: im.Name,
		Type: string(im.Settings.Type), Ports: ports(im.Settings.Ports), Mode: importMode(im),
		Endpoints: map[string]int{}, Ready: string(metav1.ConditionUnknown), Source: sourceBroker,
	}
	for i := range im.Clusters {
		c := &im.Clusters[i]
		row.From = append(row.From, c.Cluster)
		if im.Withheld {
			continue
		}
		row.Endpoints[c.Cluster] = readyBackends(c.Backends)
		if e := m.export(im.Namespace, im.Name); c.Cluster == m.Name && e != nil {
			row.Endpoints[c.Cluster] = readyBackends(e.Backends)
		}
	}
	if m.services == nil {
		row.presence, row.Message = reportedImport(b, im)
		if m.err != nil {
			row.Message += "; " + m.unavailable()
		}
		return row
	}
	row.Source, row.Endpoints, row.Ready = sourceMember, nil, string(metav1.ConditionFalse)
	alive, exists := m.services.namespaces[im.Namespace]
	switch {
	case !exists:
		row.Message = "NamespaceMissing: create it there: kubectl --context " + m.Name + " create namespace " + im.Namespace
	case !alive:
		row.Message = "NamespaceTerminating: the import comes once the namespace is there anew"
	case im.Withheld:
		row.Message = "Withheld: the broker has not heard of the namespace yet"
	default:
		row.Message = "Pending: the cluster agent has not made the ServiceImport yet"
	}
	return row
}

// reportedImport is what the member's agent last reported of an import: those of the revision that it has seen exist,
// but for those that it lists with a problem.
func reportedImport(b *v1alpha1.Bundle, im *v1alpha1.Import) (presence, string) {
	if b.Status.ObservedRevision == 0 || b.Status.ObservedRevision < b.Spec.Revision || b.Status.ImportsLeftOut > 0 {
		return importUnknown, "as the broker wants it"
	}
	for i := range b.Status.Imports {
		p := &b.Status.Imports[i]
		if p.Namespace == im.Namespace && slices.Contains(p.Names, im.Name) {
			return importAbsent, "as last reported: " + strings.TrimSuffix(p.Reason+": "+p.Message, ": ")
		}
	}
	return importPresent, "as last reported"
}

func importMode(im *v1alpha1.Import) string {
	if im.Settings.Type == v1alpha1.Headless {
		return ""
	}
	return string(cmp.Or(im.Mode, v1alpha1.ServiceModeClusterSetIP))
}

// export is what the member reports of a service, nil if nothing.
func (m *fleetMember) export(namespace, name string) *v1alpha1.Export {
	for i := range m.bundles {
		for j := range m.bundles[i].Status.Exports {
			if e := &m.bundles[i].Status.Exports[j]; e.Namespace == namespace && e.Name == name {
				return e
			}
		}
	}
	return nil
}

// presentImport is a ServiceImport in the member; wanted is nil for one that the broker does not want.
func presentImport(m *fleetMember, im *mcsv1beta1.ServiceImport, wanted *importRow) *importRow {
	row := &importRow{
		Cluster: m.Name, Namespace: im.Namespace, Name: im.Name, Type: string(im.Spec.Type), IPs: im.Spec.IPs,
		Endpoints: map[string]int{}, Source: sourceMember,
	}
	for _, p := range im.Spec.Ports {
		row.Ports = append(row.Ports, strings.TrimPrefix(fmt.Sprintf("%s:%d/%s", p.Name, p.Port, p.Protocol), ":"))
	}
	for _, c := range im.Status.Clusters {
		row.From = append(row.From, c.Cluster)
		row.Endpoints[c.Cluster] = 0
	}
	maps.Copy(row.Endpoints, readyEndpoints(m.services.slices, im.Namespace, im.Name))
	row.Ready, row.Message = importReady(im)
	if managed(im) && row.Ready != string(metav1.ConditionFalse) {
		row.presence = importPresent
	}
	switch {
	case !managed(im):
		row.Message = "not made by Sealane, and in its way"
	case wanted == nil:
		row.Message = "no longer exported: about to go"
	default:
		row.Mode = wanted.Mode
	}
	return row
}

// importReady is the Ready condition, which v1alpha1 of the API has not: there, an address says so.
func importReady(im *mcsv1beta1.ServiceImport) (ready, message string) {
	c := meta.FindStatusCondition(im.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
	switch {
	case c != nil && c.Status == metav1.ConditionTrue:
		return string(c.Status), ""
	case c != nil:
		return string(c.Status), reasoned(c)
	case im.Spec.Type == mcsv1beta1.Headless || len(im.Spec.IPs) > 0:
		return string(metav1.ConditionTrue), ""
	}
	return string(metav1.ConditionUnknown), ""
}

// managed says whether Sealane wrote a ServiceImport or Service.
func managed(o metav1.Object) bool {
	return v1alpha1.OwnsServiceImport(o)
}

// readyEndpoints counts the endpoints of an import by the cluster that they are in: of both families, the
// one with more.
func readyEndpoints(all []discoveryv1.EndpointSlice, namespace, name string) map[string]int {
	type source struct {
		cluster string
		family  discoveryv1.AddressType
	}
	addresses := map[source]map[string]bool{}
	for i := range all {
		s := &all[i]
		if s.Namespace != namespace || s.Labels[mcsv1beta1.LabelServiceName] != name {
			continue
		}
		from := source{s.Labels[mcsv1beta1.LabelSourceCluster], s.AddressType}
		if addresses[from] == nil {
			addresses[from] = map[string]bool{}
		}
		for _, e := range s.Endpoints {
			if len(e.Addresses) > 0 && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				addresses[from][e.Addresses[0]] = true
			}
		}
	}
	out := map[string]int{}
	for from, set := range addresses {
		out[from.cluster] = max(out[from.cluster], len(set))
	}
	return out
}
