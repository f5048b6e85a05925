// SPDX-License-Identifier: Apache-2.0

package dnspath

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// exports: some cluster exports the service, and the one that the name mentions does.
func exports(f *Facts) []Step {
	n := &f.Name
	if n.Cluster != "" && !slices.Contains(f.Members, n.Cluster) {
		return []Step{broken(stepExport, fmt.Sprintf("%q, before the service, to be a cluster", n.Cluster),
			"members: "+strings.Join(f.Members, ", "), "check the name: "+strings.ReplaceAll(shapes, "DOMAIN", n.Domain))}
	}
	var steps []Step
	var good, bad []string
	for _, e := range f.Exports {
		if !e.Exported {
			bad = append(bad, e.Cluster+": "+e.Message)
			continue
		}
		text := e.Cluster
		if e.Ready >= 0 {
			text += fmt.Sprintf(" (%d ready)", e.Ready)
		}
		good = append(good, text)
		if e.Cluster == n.Cluster {
			steps = append(steps, ok(stepExport, "%s exports it", text))
		}
	}
	expected := fmt.Sprintf("a cluster that exports %s in %s", n.Service, n.Namespace)
	remedy := fmt.Sprintf("see %s show services -n %s", f.Plugin, n.Namespace)
	switch {
	case len(f.Exports) == 0:
		found := "no ServiceExport in any member, nor on the Karmada API"
		if len(f.Similar) > 0 {
			found += "\nexported are: " + shorten(f.Similar)
		}
		return []Step{broken(stepExport, expected, found,
			fmt.Sprintf("check the name, or export the service: %s export %s -n %s -C <cluster>", f.Plugin, n.Service,
				n.Namespace))}
	case len(good) == 0:
		return []Step{broken(stepExport, expected, strings.Join(bad, "\n"), remedy)}
	case n.Cluster != "" && len(steps) == 0:
		return []Step{broken(stepExport, "cluster "+n.Cluster+" to export it",
			strings.Join(append([]string{"exported by " + strings.Join(good, ", ")}, bad...), "\n"), remedy)}
	case n.Cluster == "":
		steps = append(steps, ok(stepExport, "exported by %s", strings.Join(good, ", ")))
	}
	for _, text := range bad {
		steps = append(steps, note(stepExport, "not exported by %s", text))
	}
	return steps
}

// bundle: the broker has this member import the service, and Karmada has brought that here.
func bundle(f *Facts) []Step {
	n := &f.Name
	expected := fmt.Sprintf("the broker to have %s import %s/%s", f.Cluster, n.Namespace, n.Service)
	wanted, im := find(f.Wanted, n), f.imported()
	works := fmt.Sprintf("see kubectl get works -n karmada-es-%s and kubectl get cluster %s on the Karmada API",
		f.Cluster, f.Cluster)
	switch {
	case im == nil && wanted != nil:
		return []Step{broken(stepBundle, expected+", and Karmada to bring it there",
			"it is on the Karmada API, and not in the Bundle in "+f.Cluster, works)}
	case f.Bundle == nil:
		return []Step{broken(stepBundle, expected, "there is no Bundle for it in "+f.Cluster, works)}
	case im == nil && f.narrowed() != "":
		return []Step{broken(stepBundle, expected, f.narrowed(),
			"widen that if it is not meant: the annotations of the ServiceExport, or spec.importers of the ServicePolicy")}
	case im == nil:
		return []Step{broken(stepBundle, expected, "it is exported, and the broker has not",
			"the logs of sealane-controller on the cluster that hosts Karmada")}
	}
	from := make([]string, 0, len(im.Clusters))
	for i := range im.Clusters {
		from = append(from, im.Clusters[i].Cluster)
	}
	kind := string(im.Settings.Type)
	if f.clusterIP() {
		kind = "in ClusterIP mode"
	}
	steps := []Step{ok(stepBundle, "the broker has %s import it from %s, %s", f.Cluster, strings.Join(from, ", "), kind)}
	if wanted != nil && !equality.Semantic.DeepEqual(im, wanted) {
		steps = append(steps,
			note(stepBundle, "the Karmada API has a newer Bundle than %s: what follows may be old; %s", f.Cluster, works))
	}
	return steps
}

// narrowed says whether and how the exports or the policy leave this member out.
func (f *Facts) narrowed() string {
	var parts []string
	if f.Importers != "" {
		parts = append(parts, "the ServicePolicy lets import: "+f.Importers)
	}
	for _, e := range f.Exports {
		if e.Exported && e.Scope != "" {
			parts = append(parts, "the export of "+e.Cluster+" lets import: "+e.Scope)
		}
	}
	return strings.Join(parts, "\n")
}

// shape: a name of this shape exists for a service of this type, and the port does.
func shape(f *Facts) []Step {
	n, im := &f.Name, f.imported()
	service := n.Service + "." + n.Namespace + ".svc." + n.Domain
	if names := f.Peering.Spec.DNS.ClusterNames; n.Cluster != "" && !f.headless() && names != nil && !*names {
		return []Step{broken(stepName, "a name without a cluster: the ClusterSet has none for single clusters", n.FQDN,
			"ask for "+service+", or set spec.dns.clusterNames of the ClusterSet")}
	}
	if n.Kind == Host && !f.headless() {
		return []Step{broken(stepName, "a headless service: only these have names of single hosts",
			n.Service+" is of type "+string(im.Settings.Type), "ask for "+service)}
	}
	if n.Cluster != "" && len(f.sources()) == 0 {
		return []Step{broken(stepBundle, "the import to have a part of cluster "+n.Cluster,
			"it has none: the scope of that cluster's export leaves "+f.Cluster+
				" out, or its type lost to that of an older export",
			fmt.Sprintf("see %s show services -n %s -o wide", f.Plugin, n.Namespace))}
	}
	if n.Protocol == "" {
		return nil
	}
	var all []string
	for _, p := range im.Settings.Ports {
		if strings.EqualFold(p.Name, n.Port) && strings.EqualFold(string(p.Protocol), n.Protocol) {
			return nil
		}
		all = append(all, "_"+p.Name+"._"+strings.ToLower(string(p.Protocol)))
	}
	return []Step{broken(stepName, "a port of the service, by its name",
		"_"+n.Port+"._"+n.Protocol+" is none; the service has "+strings.Join(all, ", "), "check the name")}
}

// namespace: imports are made in namespaces that exist.
func namespace(f *Facts) []Step {
	n := f.Name.Namespace
	alive, exists := f.Namespaces[n]
	found, remedy := "there is none", f.Kubectl+" create namespace "+n
	switch {
	case exists && alive:
		return []Step{ok(stepNamespace, "namespace %s exists in %s", n, f.Cluster)}
	case exists:
		found, remedy = "it is being deleted", "wait until it is gone, and create it anew"
	}
	return []Step{broken(stepNamespace, "namespace "+n+" in "+f.Cluster+", where the import belongs", found, remedy)}
}

// serviceImport: it is there and Sealane's, as no name exists without; and where the name leads to its address, it is
// ready and has one.
func serviceImport(f *Facts) []Step {
	im := f.ServiceImport
	expected := fmt.Sprintf("a ServiceImport %s/%s in %s", f.Name.Namespace, f.Name.Service, f.Cluster)
	verdict := func(found, remedy string) []Step {
		return []Step{broken(stepServiceImport, expected, found, remedy)}
	}
	if im == nil && f.imported().Withheld {
		return verdict("the broker has not heard yet that the namespace is there", "wait a second; then see "+
			f.agentLogs())
	}
	if im == nil {
		return verdict("the cluster agent has not made it", f.agentLogs())
	}
	if !v1alpha1.OwnsServiceImport(im) {
		return verdict("one that Sealane did not make is in the way", "delete or rename it; Sealane then makes its own")
	}
	c := meta.FindStatusCondition(im.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
	if c != nil && c.Status != metav1.ConditionTrue {
		found := "it is not ready: " + c.Reason + ": " + c.Message
		if !f.clusterSetIP() {
			return []Step{note(stepServiceImport, "%s; the name does not lead to its address", found)}
		}
		return verdict(found,
			"see its conditions: "+f.Kubectl+" get serviceimport "+f.Name.Service+" -n "+f.Name.Namespace+" -o yaml")
	}
	if !f.clusterSetIP() {
		return []Step{ok(stepServiceImport, "%s/%s is ready", im.Namespace, im.Name)}
	}
	if len(im.Spec.IPs) == 0 {
		return verdict("it has no address", f.agentLogs())
	}
	return []Step{ok(stepServiceImport, "%s/%s is ready and has %s", im.Namespace, im.Name,
		strings.Join(im.Spec.IPs, ", "))}
}

// service: the derived Service has the addresses of the import.
func service(f *Facts) []Step {
	if !f.clusterSetIP() {
		return nil
	}
	expected := "a derived Service with the addresses of the ServiceImport, " +
		strings.Join(f.ServiceImport.Spec.IPs, ", ")
	switch {
	case f.Derived == nil:
		return []Step{broken(stepService, expected, "there is none",
			"the cluster agent makes it anew, and has not: "+f.agentLogs())}
	case !slices.Equal(addressesOf(f.Derived), f.ServiceImport.Spec.IPs):
		return []Step{broken(stepService, expected, f.Derived.Name+" has "+strings.Join(addressesOf(f.Derived), ", "),
			f.agentLogs())}
	}
	return []Step{ok(stepService, "the derived Service %s has the import's addresses", f.Derived.Name)}
}

// addressesOf a Service; a member with the API of v1alpha1 imports the first only.
func addressesOf(s *corev1.Service) []string {
	if len(s.Spec.ClusterIPs) == 0 {
		return []string{s.Spec.ClusterIP}
	}
	return s.Spec.ClusterIPs
}
