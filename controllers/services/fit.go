// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// maxBundle is the size in JSON that no BundleSpec exceeds: etcd refuses objects of 1.5 MB, and a
	// Bundle is carried in a Work beside what the member reports.
	maxBundle = 512 << 10
	// maxConditions of these are for conditions: a member with very many exports still imports.
	maxConditions = maxBundle / 2
	// envelope is the JSON of a BundleSpec around its lists.
	envelope = len(`{"revision":-9223372036854775808,"shard":-2147483648,"imports":[],"exportConditions":[]}`)
)

// Exported is the message of Ready where it is true. What importers do not get of the export follows, after "; ".
const Exported = v1alpha1.MessageExported

// fit gives every member its imports and conditions. What does not fit is left out of that member's Bundle, and
// nothing else.
func fit(members []*member, byName map[string]*member, services []*service, follow *rules) {
	longest := ""
	for _, m := range members {
		m.size = envelope
		if len(m.Cluster) > len(longest) {
			longest = m.Cluster
		}
	}
	// Whether an import fits decides about a condition's text: room is kept for the longer one.
	worst := make([]string, len(members))
	for i := range worst {
		worst[i] = longest
	}
	kept := map[*accepted]bool{}
	for _, s := range services {
		live := s.live()
		for i := range live {
			a := &live[i]
			c, full := ready(a, nil), ready(a, worst)
			last := byName[a.cluster].last(c)
			size := max(conditionSize(&c), conditionSize(&full), conditionSize(&last)) + conditionSize(&s.conflict)
			kept[a] = byName[a.cluster].reserve(size)
		}
	}
	for _, m := range members {
		m.fitOthers(services)
	}
	unusable := map[*accepted]string{}
	told := unusableIn(members, services)
	for _, s := range services {
		live := s.live()
		for i := range live {
			a := &live[i]
			m, text := byName[a.cluster], told[a.key()]
			// In JSON each quote takes one byte more.
			if size := 2 * len(text); kept[a] && m.Known && text != "" && m.size+size <= maxConditions {
				m.size += size
				unusable[a] = text
			}
		}
	}
	// In the order of a Bundle, so that there is nothing left to sort.
	ordered := slices.SortedFunc(slices.Values(services), func(a, b *service) int { return compareKeys(a.key, b.key) })
	for i, m := range members {
		if !m.placeAll(ordered, i) {
			m.placeFairly(services, ordered, i, byName, follow)
		}
	}
	for _, m := range members {
		m.overdrawn.tell(m)
	}
	for _, s := range services {
		live := s.live()
		for i := range live {
			a := &live[i]
			if m := byName[a.cluster]; kept[a] {
				c := m.last(ready(a, s.full[a.cluster]))
				if c.Status == metav1.ConditionTrue {
					c.Message += unusable[a]
				}
				m.conditions = append(m.conditions, c, s.conflict)
			}
		}
	}
}

// placeAll adds every import that member i sees to its Bundle, unless they do not all fit.
func (m *member) placeAll(services []*service, i int) bool {
	size := m.size
	imports := make([]*sized, 0, len(services))
	for _, s := range services {
		if s.views[i] == nil {
			continue
		}
		imported := s.views[i].forMember(m.Cluster)
		if size += imported.size; size > maxBundle {
			return false
		}
		imports = append(imports, imported)
	}
	m.imports, m.size = imports, size
	return true
}

// forMember returns the import as one member gets it: an exporter's own backends are not in its Bundle.
func (m *merged) forMember(cluster string) *sized {
	at := slices.IndexFunc(m.imported.Clusters, func(c v1alpha1.ImportCluster) bool { return c.Cluster == cluster })
	if at < 0 {
		return &m.sized
	}
	if own, ok := m.own[cluster]; ok {
		return own
	}
	imported := *m.imported
	imported.Clusters = slices.Clone(m.imported.Clusters)
	own, out := &imported.Clusters[at], &sized{imported: &imported, size: m.size}
	out.size -= sizeOf(*own)
	own.Backends, own.ReadyBackends = []v1alpha1.Backends{}, nil
	out.size += sizeOf(*own)
	if m.own == nil {
		m.own = map[string]*sized{}
	}
	m.own[cluster] = out
	return out
}

// reserve takes room for conditions, if there is any.
func (m *member) reserve(size int) bool {
	if m.size+size > maxConditions {
		m.problem(v1alpha1.ReasonBundleFull, "the cluster exports so many services that the conditions of some have no "+
			"room: expect these to be pending, and export fewer or use a ClusterSet with more shards")
		return false
	}
	m.size += size
	return true
}

// fitOthers adds the conditions of what was refused and, while the member is unknown, of all that no Bundle
// tells of.
func (m *member) fitOthers(services []*service) {
	for _, k := range slices.SortedFunc(maps.Keys(m.refused), compareKeys) {
		c := v1alpha1.ExportCondition{
			Namespace: k.namespace, Name: k.name, Type: string(mcs.ServiceExportConditionReady),
			Status: metav1.ConditionFalse, Reason: m.refused[k].reason, Message: "refused: " + m.refused[k].message,
		}
		if m.reserve(conditionSize(&c)) {
			m.conditions = append(m.conditions, c)
		}
	}
	if m.Known || m.Last == nil {
		return
	}
	told := make(map[key]bool, len(services))
	for i := range m.exports {
		told[m.exports[i].key()] = true
	}
	for _, c := range m.Last.ExportConditions {
		k := key{c.Namespace, c.Name}
		if _, refused := m.refused[k]; !told[k] && !refused && m.reserve(conditionSize(&c)) {
			m.conditions = append(m.conditions, c)
		}
	}
}

// last returns the condition that an unknown member's export had, if that is true now and was, or no backend was
// routed: only the member's report tells what was left out of it.
func (m *member) last(c v1alpha1.ExportCondition) v1alpha1.ExportCondition {
	if m.Known || c.Status != metav1.ConditionTrue {
		return c
	}
	if before := m.told(c); before.Status == metav1.ConditionTrue || before.Reason == ReasonNotRouted {
		return before
	}
	return c
}

// told returns the condition of the same export and type in the Bundle last written, or an empty one.
func (m *member) told(c v1alpha1.ExportCondition) v1alpha1.ExportCondition {
	if m.Last == nil {
		return v1alpha1.ExportCondition{}
	}
	at, ok := slices.BinarySearchFunc(m.Last.ExportConditions, c, compareConditions)
	if !ok {
		return v1alpha1.ExportCondition{}
	}
	return m.Last.ExportConditions[at]
}

func compareConditions(a, b v1alpha1.ExportCondition) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type))
}

// ready returns the Ready condition of an export that these clusters have no room for.
func ready(a *accepted, full []string) v1alpha1.ExportCondition {
	out := v1alpha1.ExportCondition{
		Namespace: a.export.Namespace, Name: a.export.Name, Type: string(mcs.ServiceExportConditionReady),
		Status: metav1.ConditionTrue, Reason: string(mcs.ServiceExportReasonExported), Message: Exported,
	}
	if a.unreachable() {
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, ReasonNotRouted, "no other cluster can reach it"
	}
	for _, text := range a.leftOut() {
		out.Message += "; " + text
	}
	if len(full) > 0 {
		out.Status, out.Reason = metav1.ConditionFalse, v1alpha1.ReasonBundleFull
		out.Message = fmt.Sprintf("no room in the Bundle (%d KiB) of %d clusters, the first being %s: the cluster's share "+
			"is used up by its older exports; export fewer, or use a ClusterSet with more shards",
			maxBundle>>10, len(full), full[0])
	}
	return out
}

// leftOut says what of an export the importers do not get, why, and what to do about it.
func (a *accepted) leftOut() []string {
	var out []string
	if n := a.notRouted + a.outside + a.malformed; n > 0 {
		var why []string
		for _, x := range []struct {
			count int
			text  string
		}{
			{a.outside, "outside the cluster's accepted pod CIDRs: complete these in the ClusterSet, spec.clusters" +
				a.orExternal()},
			{a.notRouted, "with the address of their node; " + a.whyNotRouted},
			{a.malformed, "without a valid address, hostname, zone or ports"},
		} {
			if x.count > 0 {
				why = append(why, fmt.Sprintf("%d %s", x.count, x.text))
			}
		}
		kept := 0
		for i := range a.export.Backends {
			kept += len(a.export.Backends[i].Addresses)
		}
		out = append(out, fmt.Sprintf("%d of %d backends left out: %s", n, n+kept, strings.Join(why, ", ")))
	}
	if a.foreignIPs > 0 {
		out = append(out, fmt.Sprintf("%d ClusterIPs left out: outside the cluster's accepted service CIDRs", a.foreignIPs))
	}
	if a.onlyIPv6 {
		out = append(out, "not reached by clusters that know this one by its block of global addresses: it has none of "+
			"IPv6, and no pod has another")
	}
	if a.withoutGlobal > 0 {
		out = append(out, fmt.Sprintf("%d pods not reached by clusters that know this one by its block of global addresses: "+
			"they have none, see the GlobalIngressIP of that name in the cluster", a.withoutGlobal))
	}
	if len(a.hosts) > 0 && a.hostsToSome {
		out = append(out, fmt.Sprintf("%d hosts outside the cluster not reached by clusters that do not know this one by "+
			"its block of global addresses", len(a.hosts)))
	}
	for _, text := range a.dropped {
		if text != "" {
			out = append(out, "not exported: "+text)
		}
	}
	return append(out, a.export.Remarks...)
}

// orExternal says, of a headless Service, what else can be done about backends outside.
func (a *accepted) orExternal() string {
	if a.export.Settings.Type != v1alpha1.Headless {
		return ""
	}
	return ", or externalCIDRs there for hosts outside the cluster"
}

// conditionSize is sizeOf without encoding: each decision takes the sizes of thousands of conditions.
func conditionSize(c *v1alpha1.ExportCondition) int {
	const names = len(`{"namespace":,"name":,"type":,"status":,"reason":,"message":},`)
	return names + textSize(c.Namespace) + textSize(c.Name) + textSize(c.Type) + textSize(string(c.Status)) +
		textSize(c.Reason) + textSize(c.Message)
}

// textSize returns the length in JSON of what is nearly always plain text.
func textSize(s string) int {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&':
			return sizeOf(s) - 1
		}
	}
	return len(s) + len(`""`)
}

// sizeOf returns the length in JSON, with a comma.
func sizeOf(v any) int {
	// The types of the API always encode.
	b, _ := json.Marshal(v)
	return len(b) + 1
}
