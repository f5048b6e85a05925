// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Conditions of a ServiceExport.
const (
	exportValid    = string(mcsv1beta1.ServiceExportConditionValid)
	exportReady    = string(mcsv1beta1.ServiceExportConditionReady)
	exportConflict = string(mcsv1beta1.ServiceExportConditionConflict)
	exportPending  = string(mcsv1beta1.ServiceExportReasonPending)
)

// exportState is how far the export of a service from one cluster has come.
type exportState string

const (
	// stateExported: the broker took it in.
	stateExported exportState = "exported"
	// statePending: something is still to happen that needs nobody.
	statePending exportState = "pending"
	// stateFailed: it needs a person.
	stateFailed exportState = "failed"
)

// serviceRow is one service that is exported, or that somebody means to export.
type serviceRow struct {
	Namespace  string     `json:"namespace"`
	Name       string     `json:"name"`
	Type       string     `json:"type,omitempty"`
	Ports      []string   `json:"ports,omitempty"`
	Mode       string     `json:"mode,omitempty"`
	Policy     *policyRow `json:"policy,omitempty"`
	ExportedBy []string   `json:"exportedBy,omitempty"`
	// ImportedBy are the clusters whose ServiceImport exists and is not Ready=False. UnknownImporters are to have
	// it and could not be asked.
	ImportedBy       []string    `json:"importedBy,omitempty"`
	UnknownImporters []string    `json:"unknownImporters,omitempty"`
	Clusters         []exportRow `json:"clusters,omitempty"`
	Problems         []string    `json:"problems,omitempty"`
}

// exportRow is a service in one cluster that exports it, or is expected to.
type exportRow struct {
	Cluster string      `json:"cluster"`
	State   exportState `json:"state"`
	// ReadyBackends is absent while the cluster reports no export, and at most 101 for one of a ClusterIP.
	ReadyBackends *int   `json:"readyBackends,omitempty"`
	Scope         string `json:"scope,omitempty"`
	Conflict      string `json:"conflict,omitempty"`
	Message       string `json:"message,omitempty"`
}

// importers are the clusters that import it; a question mark is behind one that could not be asked.
func (r *serviceRow) importers() []string {
	out := slices.Clone(r.ImportedBy)
	for _, name := range r.UnknownImporters {
		out = append(out, name+"?")
	}
	slices.Sort(out)
	return out
}

// lines of the table: one per cluster, or one for a service without any.
func (r *serviceRow) lines() [][]string {
	clusters := r.Clusters
	if len(clusters) == 0 {
		clusters = []exportRow{{}}
	}
	var out [][]string
	for i, c := range clusters {
		problems := []string{c.Conflict, c.Message}
		if i == 0 {
			problems = append(problems, r.Problems...)
		}
		backends := ""
		if c.ReadyBackends != nil {
			backends = backendCount(*c.ReadyBackends, r.Type)
		}
		out = append(out, []string{
			r.Namespace, r.Name, r.Type, c.Cluster, string(c.State), backends, list(r.importers()),
			strings.Join(slices.DeleteFunc(problems, func(s string) bool { return s == "" }), "; "),
			list(r.Ports), r.Mode, r.Policy.text(), c.Scope,
		})
	}
	return out
}

// backendCount writes a number that members report no higher than 101.
func backendCount(n int, kind string) string {
	if n > 100 && kind != string(v1alpha1.Headless) {
		return ">100"
	}
	return strconv.Itoa(n)
}

// serviceView is what the Karmada API and the members say of one service.
type serviceView struct {
	row serviceRow
	// template on the Karmada API, nil for a service that members export on their own.
	template *exportTemplate
	policy   *v1alpha1.ServicePolicy
	// mode that the oldest export asks for, or the ClusterSet's.
	fallback v1alpha1.ServiceMode
	clusters map[string]*exportView
}

// exportView is what is known of a service's export in one cluster.
type exportView struct {
	cluster string
	// member is nil for a cluster that Karmada chose and that is no member.
	member *fleetMember
	// placed says that Karmada puts the ServiceExport there.
	placed bool
	// own is the ServiceExport in the member, where that could be asked.
	own *mcsv1beta1.ServiceExport
	// reported is the export as the member reports it, and said what the broker answered.
	reported *v1alpha1.Export
	said     []metav1.Condition
}

// serviceRows join what Karmada is to spread, what members export, what the broker says of it, and who
// imports it.
func serviceRows(f *fleet) []serviceRow {
	views := map[string]*serviceView{}
	at := func(namespace, name string) *serviceView {
		key := namespace + "/" + name
		if views[key] == nil {
			views[key] = &serviceView{row: serviceRow{Namespace: namespace, Name: name}, clusters: map[string]*exportView{}}
		}
		return views[key]
	}
	for i := range f.templates {
		at(f.templates[i].Namespace, f.templates[i].Name).template = &f.templates[i]
	}
	for i := range f.policies {
		at(f.policies[i].Namespace, f.policies[i].Name).policy = &f.policies[i]
	}
	for i := range f.members {
		addMember(f, &f.members[i], at)
	}
	rows := make([]serviceRow, 0, len(views))
	for _, v := range views {
		if f.namespace != "" && v.row.Namespace != f.namespace {
			continue
		}
		if row, ok := v.finish(f); ok {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b serviceRow) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

// addMember adds what one member exports and imports.
func addMember(f *fleet, m *fleetMember, at func(namespace, name string) *serviceView) {
	if m.services != nil {
		for i := range m.services.exports {
			e := &m.services.exports[i]
			at(e.Namespace, e.Name).in(m).own = e
		}
	}
	for i := range m.bundles {
		b := &m.bundles[i]
		for j := range b.Status.Exports {
			e := &b.Status.Exports[j]
			v := at(e.Namespace, e.Name)
			v.in(m).reported = e
			v.describe(&e.Settings, "")
			v.fallback = f.mode(m.Spec.ClusterSet)
		}
		for j := range b.Spec.Imports {
			im := &b.Spec.Imports[j]
			at(im.Namespace, im.Name).describe(&im.Settings, cmp.Or(im.Mode, v1alpha1.ServiceModeClusterSetIP))
		}
		for _, c := range b.Spec.ExportConditions {
			e := at(c.Namespace, c.Name).in(m)
			e.said = append(e.said, metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
	}
	for _, im := range memberImports(f, m) {
		v := at(im.Namespace, im.Name)
		switch im.presence {
		case importPresent:
			v.row.ImportedBy = append(v.row.ImportedBy, m.Name)
		case importUnknown:
			v.row.UnknownImporters = append(v.row.UnknownImporters, m.Name)
		}
		if im.problem() {
			v.row.Problems = append(v.row.Problems, importProblem+m.Name+": "+im.Message)
		}
	}
}

// describe takes type, ports and mode from an import; while there is none, from an export.
func (v *serviceView) describe(s *v1alpha1.ServiceSettings, mode v1alpha1.ServiceMode) {
	if v.row.Type != "" && mode == "" {
		return
	}
	v.row.Type, v.row.Ports = string(s.Type), ports(s.Ports)
	if mode != "" && s.Type == v1alpha1.ClusterSetIP {
		v.row.Mode = string(mode)
	}
}

func (v *serviceView) in(m *fleetMember) *exportView {
	if v.clusters[m.Name] == nil {
		v.clusters[m.Name] = &exportView{cluster: m.Name, member: m}
	}
	return v.clusters[m.Name]
}

// mode of services in a ClusterSet.
func (f *fleet) mode(set string) v1alpha1.ServiceMode {
	for i := range f.clusterSets {
		if f.clusterSets[i].Name == set {
			return f.clusterSets[i].Spec.Services.Mode
		}
	}
	return ""
}

// finish makes the row; it is false for a service that only has conditions of an export that is gone.
func (v *serviceView) finish(f *fleet) (serviceRow, bool) {
	v.place(f)
	for _, name := range slices.Sorted(maps.Keys(v.clusters)) {
		e := v.clusters[name]
		if e.own == nil && e.reported == nil && !e.placed {
			continue
		}
		row := e.row(v.template)
		v.row.Clusters = append(v.row.Clusters, row)
		if row.State == stateExported {
			v.row.ExportedBy = append(v.row.ExportedBy, name)
		}
	}
	if v.row.Mode == "" && v.row.Type == string(v1alpha1.ClusterSetIP) {
		v.row.Mode = string(cmp.Or(v.asked(), v.fallback, v1alpha1.ServiceModeClusterSetIP))
	}
	if v.template != nil && len(v.row.Clusters) == 0 && len(f.only) == 0 {
		v.row.Problems = append(v.row.Problems, unplaced(v.template))
	}
	if v.template != nil {
		v.row.Problems = append(v.row.Problems, v.rivals()...)
	}
	importing := len(v.row.ImportedBy)+len(v.row.UnknownImporters) > 0
	if v.template == nil && len(v.row.Clusters) == 0 && importing && len(f.only) == 0 {
		v.row.Problems = append(v.row.Problems, "no cluster exports it any more: about to go")
	}
	if v.policy != nil {
		v.row.Policy = describePolicy(v.policy)
		if p := v.row.Policy; p.Message != "" {
			v.row.Problems = append(v.row.Problems, "ServicePolicy: "+p.Message)
		}
	}
	relevant := len(v.row.Clusters) > 0 || v.template != nil || v.policy != nil || importing || len(v.row.Problems) > 0
	return v.row, relevant
}

// rivals are conflicts that the Karmada API knows of and no cluster does: with Karmada's own imports of the
// service.
func (v *serviceView) rivals() []string {
	c := meta.FindStatusCondition(v.template.Status.Conditions, exportConflict)
	if c == nil || c.Status != metav1.ConditionTrue {
		return nil
	}
	for reason := range strings.SplitSeq(c.Reason, ",") {
		if !slices.ContainsFunc(v.row.Clusters, func(e exportRow) bool { return strings.Contains(e.Conflict, reason) }) {
			return []string{reasoned(c)}
		}
	}
	return nil
}

// asked is the mode that the oldest export asks for.
func (v *serviceView) asked() v1alpha1.ServiceMode {
	var oldest *v1alpha1.Export
	for _, name := range slices.Sorted(maps.Keys(v.clusters)) {
		if e := v.clusters[name].reported; e != nil && (oldest == nil || e.CreatedAt.Before(&oldest.CreatedAt)) {
			oldest = e
		}
	}
	if oldest == nil {
		return ""
	}
	return oldest.Mode
}

// place marks the clusters that Karmada puts the ServiceExport in.
func (v *serviceView) place(f *fleet) {
	if v.template == nil || v.template.binding == nil {
		return
	}
	for _, target := range v.template.binding.Spec.Clusters {
		if len(f.only) > 0 && !slices.Contains(f.only, target.Name) {
			continue
		}
		if v.clusters[target.Name] == nil {
			v.clusters[target.Name] = &exportView{cluster: target.Name, member: f.member(target.Name)}
		}
		v.clusters[target.Name].placed = true
	}
}

func (f *fleet) member(name string) *fleetMember {
	for i := range f.members {
		if f.members[i].Name == name {
			return &f.members[i]
		}
	}
	return nil
}

// unplaced says why Karmada puts a ServiceExport nowhere.
func unplaced(t *exportTemplate) string {
	if t.binding == nil {
		return "the ServiceExport on the Karmada API is in no cluster: no PropagationPolicy selects it"
	}
	text := "Karmada schedules the ServiceExport to no cluster"
	if c := meta.FindStatusCondition(t.binding.Status.Conditions, workv1alpha2.Scheduled); c != nil &&
		c.Status != metav1.ConditionTrue {
		text += ": " + c.Message
	}
	return text
}

// row judges one export: by what the broker says of it, else the member, else Karmada.
func (e *exportView) row(t *exportTemplate) exportRow {
	row := exportRow{Cluster: e.cluster, State: statePending}
	if e.reported != nil {
		n := readyBackends(e.reported.Backends)
		row.ReadyBackends, row.Scope = &n, e.reported.Scope.Text()
	}
	conditions := slices.Clone(e.said)
	if valid := e.valid(t); valid != nil {
		conditions = append(conditions, *valid)
	}
	if c := meta.FindStatusCondition(conditions, exportConflict); c != nil && c.Status == metav1.ConditionTrue {
		row.Conflict = reasoned(c)
	}
	row.State, row.Message = e.judge(t, conditions)
	if row.State == stateExported && *row.ReadyBackends == 0 {
		row.Message = strings.TrimPrefix(row.Message+"; "+noBackends, "; ")
	}
	return row
}

func (e *exportView) judge(t *exportTemplate, conditions []metav1.Condition) (exportState, string) {
	ready := meta.FindStatusCondition(conditions, exportReady)
	valid := meta.FindStatusCondition(conditions, exportValid)
	switch {
	case e.member == nil:
		return stateFailed, "the cluster is no member of a ClusterSet, and Karmada puts the ServiceExport there"
	case e.reported == nil && valid != nil && valid.Status == metav1.ConditionFalse:
		return stateFailed, reasoned(valid)
	case e.reported != nil && ready != nil && ready.Status == metav1.ConditionTrue:
		return stateExported, remarks(ready.Message)
	case e.reported != nil && ready != nil && ready.Reason != exportPending:
		return stateFailed, reasoned(ready)
	case e.reported != nil:
		return statePending, "reported, the broker has not answered yet"
	case e.own != nil:
		return statePending, "the ServiceExport is there, the cluster agent has not reported it yet"
	case e.member.err != nil:
		return statePending, "the member reports no such export and is " + e.member.unavailable()
	case e.notApplied(t) != "":
		return stateFailed, "Karmada could not apply the ServiceExport: " + e.notApplied(t)
	}
	return statePending, "Karmada has not brought the ServiceExport there yet"
}

// importProblem begins the text of a service's problem that one of its imports has.
const importProblem = "import in "

// noBackends is said of a service that nothing serves.
const noBackends = "no ready backend: see the pods and the selector of the Service there"

// remarks are what the message of a Ready export says beyond that it is one, such as backends that are left out.
func remarks(message string) string {
	return strings.TrimLeft(strings.TrimPrefix(message, v1alpha1.MessageExported), ";:. ")
}

// valid is what the member says of its own ServiceExport, there or by way of Karmada.
func (e *exportView) valid(t *exportTemplate) *metav1.Condition {
	if e.own != nil {
		return meta.FindStatusCondition(e.own.Status.Conditions, exportValid)
	}
	if item := e.aggregated(t); item != nil && item.Status != nil && e.member != nil && e.member.services == nil {
		var status mcsv1beta1.ServiceExportStatus
		if json.Unmarshal(item.Status.Raw, &status) == nil {
			return meta.FindStatusCondition(status.Conditions, exportValid)
		}
	}
	return nil
}

func (e *exportView) aggregated(t *exportTemplate) *workv1alpha2.AggregatedStatusItem {
	if t == nil || t.binding == nil {
		return nil
	}
	for i := range t.binding.Status.AggregatedStatus {
		if item := &t.binding.Status.AggregatedStatus[i]; item.ClusterName == e.cluster {
			return item
		}
	}
	return nil
}

func (e *exportView) notApplied(t *exportTemplate) string {
	if item := e.aggregated(t); item != nil && !item.Applied {
		return item.AppliedMessage
	}
	return ""
}

func reasoned(c *metav1.Condition) string {
	return strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
}

// readyBackends counts pods, not addresses: of both families, the one with more.
func readyBackends(groups []v1alpha1.Backends) int {
	ready := map[bool]map[string]bool{true: {}, false: {}}
	for i := range groups {
		for _, b := range groups[i].Addresses {
			if b.Ready {
				ready[strings.Contains(b.IP, ":")][b.IP] = true
			}
		}
	}
	return max(len(ready[true]), len(ready[false]))
}

func serviceTable(f *fleet) table {
	t := table{
		subject: "services", within: f.within(), narrow: 8,
		columns: strings.Fields("NAMESPACE NAME TYPE CLUSTER EXPORT BACKENDS IMPORTED-BY PROBLEMS PORTS MODE POLICY SCOPE"),
	}
	rows := serviceRows(f)
	for i := range rows {
		t.cells = append(t.cells, rows[i].lines()...)
	}
	t.rows = rows
	return t
}
