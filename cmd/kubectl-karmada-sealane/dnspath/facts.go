// SPDX-License-Identifier: Apache-2.0

package dnspath

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/clusterdns"
)

// Facts are what is known in one member, and elsewhere, about one name.
type Facts struct {
	// Cluster is the member that asks.
	Cluster string
	// Kubectl is the command that reaches it, Plugin this command, both as the user types them.
	Kubectl, Plugin string
	Now             time.Time
	Name            Name

	// Peering of the member; nil where there is none.
	Peering *v1alpha1.Peering
	// Agent is the cluster agent's Deployment.
	Agent Workload
	// ClusterDNS is the cluster's own.
	ClusterDNS ClusterDNS
	// DNS is Sealane's.
	DNS SealaneDNS

	// Exports of the service in every cluster that has one or is to have one, and where else a service of
	// that name, or one in that namespace, is exported.
	Exports []Export
	Similar []string
	// Importers that the ServicePolicy admits, in words; "" for all. Members are those of the ClusterSet.
	Importers string
	Members   []string

	// Bundle in the member that carries the service, and the same as the Karmada API has it; nil where
	// there is none.
	Bundle, Wanted *v1alpha1.Bundle
	// Namespaces of the member; true for one that does not terminate.
	Namespaces map[string]bool
	// ServiceImport, the derived Service and the import's EndpointSlices in the member.
	ServiceImport *mcsv1beta1.ServiceImport
	Derived       *corev1.Service
	Slices        []discoveryv1.EndpointSlice
	Gateways      []v1alpha1.Gateway

	// Answers of the cluster's own DNS, and of Sealane's asked directly.
	Answers, Direct Answers
}

// Workload is a Deployment.
type Workload struct {
	// Name as "namespace/name"; "" where there is none.
	Name           string
	Ready, Desired int
}

// ClusterDNS is the cluster's own DNS.
type ClusterDNS struct {
	// Found is what configures it, and Wiring how that was looked for.
	Found  *clusterdns.Found
	Wiring clusterdns.Wiring
	// Service as "namespace/name" and how many endpoints of it are ready; "" where there is none.
	Service string
	Ready   int
}

// SealaneDNS is Sealane's own DNS.
type SealaneDNS struct {
	// IP of its Service; not valid where there is none.
	IP netip.Addr
	// Workload that answers; Ready are its endpoints.
	Workload
}

// Export is a service in one cluster that exports it, or is to.
type Export struct {
	Cluster string
	// Exported says that the broker took it in; if not, Message says why.
	Exported bool
	Message  string
	// Scope of the export, in words.
	Scope string
	// Ready backends, -1 where that is not known.
	Ready int
}

// Answers of a DNS server to all questions that were asked for the name.
type Answers struct {
	// Unasked says why no question could be sent from here, Err why there was no answer.
	Unasked, Err string
	// Rcode of the answer, the worst of all questions.
	Rcode string
	// Records: addresses, SRV targets or texts.
	Records []string
}

func (a *Answers) text() string {
	switch {
	case a.Unasked != "":
		return "nothing: it could not be asked from here: " + a.Unasked
	case a.Err != "":
		return "nothing: " + a.Err
	case len(a.Records) == 0 && a.Rcode == "NOERROR":
		return "NOERROR without a record"
	case len(a.Records) == 0:
		return a.Rcode
	}
	return shorten(a.Records)
}

// imported is the import in the member's Bundle, nil if there is none.
func (f *Facts) imported() *v1alpha1.Import { return find(f.Bundle, &f.Name) }

func find(b *v1alpha1.Bundle, n *Name) *v1alpha1.Import {
	if b == nil {
		return nil
	}
	for i := range b.Spec.Imports {
		if im := &b.Spec.Imports[i]; im.Namespace == n.Namespace && im.Name == n.Service {
			return im
		}
	}
	return nil
}

// headless, clusterIP and clusterSetIP say how the service is imported.
func (f *Facts) headless() bool { return f.imported().Settings.Type == v1alpha1.Headless }

func (f *Facts) clusterIP() bool {
	return !f.headless() && f.imported().Mode == v1alpha1.ServiceModeClusterIP
}

// clusterSetIP says that the name leads to the address of the ServiceImport.
func (f *Facts) clusterSetIP() bool {
	return !f.headless() && !f.clusterIP() && f.Name.Cluster == ""
}

// sources are the clusters whose part the name stands for.
func (f *Facts) sources() []*v1alpha1.ImportCluster {
	var out []*v1alpha1.ImportCluster
	im := f.imported()
	for i := range im.Clusters {
		if c := &im.Clusters[i]; f.Name.Cluster == "" || c.Cluster == f.Name.Cluster {
			out = append(out, c)
		}
	}
	return out
}

// own is what this cluster itself reports of the service, nil if nothing.
func (f *Facts) own() *v1alpha1.Export {
	for i := range f.Bundle.Status.Exports {
		if e := &f.Bundle.Status.Exports[i]; e.Namespace == f.Name.Namespace && e.Name == f.Name.Service {
			return e
		}
	}
	return nil
}

// part is a source's ClusterIPs and backends, of this cluster from its own report.
func (f *Facts) part(c *v1alpha1.ImportCluster) (clusterIPs []string, backends []v1alpha1.Backends) {
	if own := f.own(); c.Cluster == f.Cluster && own != nil {
		return own.ClusterIPs, own.Backends
	}
	return c.ClusterIPs, c.Backends
}

// backends of a source.
func (f *Facts) backends(c *v1alpha1.ImportCluster) []v1alpha1.Backends {
	_, backends := f.part(c)
	return backends
}

// ready counts pods: of both families, the one with more.
func ready(groups []v1alpha1.Backends) int {
	seen := map[bool]map[string]bool{true: {}, false: {}}
	for i := range groups {
		for _, b := range groups[i].Addresses {
			if ip, err := netip.ParseAddr(b.IP); err == nil && b.Ready {
				seen[ip.Is6()][b.IP] = true
			}
		}
	}
	return max(len(seen[true]), len(seen[false]))
}

// hosts of a headless service in one cluster: hostnames, or else dashed addresses, and their addresses.
func hosts(groups []v1alpha1.Backends) map[string][]string {
	out := map[string][]string{}
	for i := range groups {
		for _, b := range groups[i].Addresses {
			label := b.Hostname
			if label == "" {
				label = dashed(b.IP)
			}
			if b.Ready && !slices.Contains(out[label], b.IP) {
				out[label] = append(out[label], b.IP)
			}
		}
	}
	return out
}
