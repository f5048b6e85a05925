// SPDX-License-Identifier: Apache-2.0

// Package imports materialises what the broker says this cluster imports: a ServiceImport, a derived
// Service whose ClusterIP is the ClusterSetIP, and EndpointSlices with the chosen clusters' addresses.
package imports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Outlive is how long a derived Service stays after its import, so that no DNS answer that is still cached
// somewhere points at an address that is nobody's, or somebody else's.
const Outlive = 60 * time.Second

// annotationOrphaned on a derived Service is when its import went, in RFC 3339.
const annotationOrphaned = "sealane.io/orphaned-at"

// Input is all that decides about one import.
type Input struct {
	// Key is the import's namespace and name.
	Key types.NamespacedName
	// ClusterID of this cluster.
	ClusterID string
	// Import is nil when the broker no longer has it.
	Import *v1alpha1.Import
	// Leaving says that everything goes at once.
	Leaving bool
	// Families that this cluster's Services can have, primary first.
	Families []corev1.IPFamily
	// Connected says whether a remote cluster can be reached.
	Connected func(cluster string) bool
	// LocalService and LocalSlices are this cluster's own Service of that name, if there is one.
	LocalService *corev1.Service
	LocalSlices  []discoveryv1.EndpointSlice
	// ServiceImport, Service (the derived one) and Slices (those of the import) as they are; nil when absent.
	ServiceImport *mcs.ServiceImport
	Service       *corev1.Service
	Slices        []discoveryv1.EndpointSlice
	// ForeignSlices are EndpointSlices of the derived Service that Sealane did not make, sorted. It leaves them alone,
	// and kube-proxy leads traffic to what they hold.
	ForeignSlices []string
	// Foreign says that a Service that Sealane did not make has the derived Service's name.
	Foreign bool
	// Limited is set where only v1alpha1 of the MCS API is served.
	Limited bool
	// NodeHints says that EndpointSlices can hold hints for nodes.
	NodeHints bool
	Now       time.Time
}

// Decision is what the objects of one import should be.
type Decision struct {
	// ServiceImport, Service and Slices as they should be: nil or not listed means gone. A Service without
	// UID is made anew, in the place of the one that there may be.
	ServiceImport *mcs.ServiceImport
	Service       *corev1.Service
	Slices        []discoveryv1.EndpointSlice
	// Again is when to decide anew though nothing has changed; 0 is never.
	Again time.Duration
}

// DerivedName is the name of the derived Service of an import, and the prefix of its EndpointSlices' names.
func DerivedName(key types.NamespacedName) string {
	return v1alpha1.DerivedName(key.Namespace, key.Name)
}

// Decide is pure.
func Decide(in Input) Decision {
	if in.Import == nil || in.Leaving {
		return gone(&in)
	}
	in.Import = sanitized(in.Import)
	families := families(&in)
	d := Decision{ServiceImport: serviceImport(&in, families)}
	if balancing(&in) && len(families) > 0 {
		d.Service = derivedService(&in, families)
	} else {
		d.Service, d.Again = orphan(&in)
	}
	for _, f := range families {
		for _, g := range groups(&in, f, d.Service != nil) {
			d.Slices = append(d.Slices, pack(&in, g)...)
		}
	}
	return d
}

// balancing says whether the import has a ClusterSetIP behind which kube-proxy balances.
func balancing(in *Input) bool {
	s := &in.Import.Settings
	return s.Type == v1alpha1.ClusterSetIP && in.Import.Mode != v1alpha1.ServiceModeClusterIP && len(s.Ports) > 0
}

// groups returns the endpoints that an import should have here in one family. When the mode of a service in use
// becomes ClusterIP, its ClusterSetIP goes on working for as long as the derived Service is there.
func groups(in *Input, family corev1.IPFamily, serviceStays bool) []group {
	switch {
	case in.Import.Settings.Type == v1alpha1.Headless:
		return headless(in, family)
	case balancing(in):
		out := chosen(in, family, balanced)
		hint(out, in.Import.Settings.TrafficDistribution, in.NodeHints)
		return out
	case serviceStays:
		return append(clusterIPs(in, family), chosen(in, family, expiring)...)
	}
	return clusterIPs(in, family)
}

// gone is the end of an import: all goes at once but the derived Service, which lives on for a while.
func gone(in *Input) Decision {
	d := Decision{}
	if !in.Leaving {
		d.Service, d.Again = orphan(in)
	}
	return d
}

// orphan returns the derived Service of an import that has none any more: marked, and later nil.
func orphan(in *Input) (*corev1.Service, time.Duration) {
	if in.Service == nil {
		return nil, 0
	}
	s := in.Service.DeepCopy()
	since, err := time.Parse(time.RFC3339, s.Annotations[annotationOrphaned])
	if err != nil || since.After(in.Now) {
		since = in.Now
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, annotationOrphaned, since.UTC().Format(time.RFC3339))
	}
	left := Outlive - in.Now.Sub(since)
	if left <= 0 {
		return nil, 0
	}
	return s, left
}

// families are those of the exporters that this cluster has too, in the order that the import already has: the
// first family of a Service cannot change.
func families(in *Input) []corev1.IPFamily {
	var out []corev1.IPFamily
	for _, f := range in.Import.Settings.IPFamilies {
		if slices.Contains(in.Families, f) && !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	first := primary(in.Service)
	if in.Service == nil && in.ServiceImport != nil && len(in.ServiceImport.Spec.IPFamilies) > 0 {
		first = in.ServiceImport.Spec.IPFamilies[0]
	}
	if len(out) == 2 && out[1] == first {
		slices.Reverse(out)
	}
	return out
}

func serviceImport(in *Input, families []corev1.IPFamily) *mcs.ServiceImport {
	i := in.Import
	out := &mcs.ServiceImport{ObjectMeta: metav1.ObjectMeta{
		Namespace: in.Key.Namespace, Name: in.Key.Name,
		Labels: maps.Clone(i.Settings.Labels), Annotations: i.Settings.Annotations,
	}}
	metav1.SetMetaDataLabel(&out.ObjectMeta, v1alpha1.LabelManagedBy, v1alpha1.ManagedBy)
	metav1.SetMetaDataLabel(&out.ObjectMeta, v1alpha1.LabelImport, in.Key.Name)
	out.Spec = mcs.ServiceImportSpec{
		Type:                  mcs.ServiceImportType(i.Settings.Type),
		Ports:                 make([]mcs.ServicePort, 0, len(i.Settings.Ports)),
		SessionAffinity:       i.Settings.SessionAffinity,
		SessionAffinityConfig: i.Settings.SessionAffinityConfig,
	}
	for _, p := range i.Settings.Ports {
		out.Spec.Ports = append(out.Spec.Ports, mcs.ServicePort{Name: p.Name, Protocol: p.Protocol,
			AppProtocol: clone(p.AppProtocol), Port: p.Port})
	}
	if !in.Limited {
		out.Spec.IPFamilies = slices.Clone(families)
		out.Spec.InternalTrafficPolicy = i.Settings.InternalTrafficPolicy
		out.Spec.TrafficDistribution = i.Settings.TrafficDistribution
	}
	out.Status = status(in, families)
	return out
}

func status(in *Input, families []corev1.IPFamily) mcs.ServiceImportStatus {
	out := mcs.ServiceImportStatus{}
	for _, c := range in.Import.Clusters {
		out.Clusters = append(out.Clusters, mcs.ClusterStatus{Cluster: c.Cluster})
	}
	if in.Limited {
		return out
	}
	out.EndpointSliceObjects = mcs.EndpointSliceObjectsPresent
	ready := mcs.NewServiceImportCondition(mcs.ServiceImportConditionReady, metav1.ConditionTrue,
		mcs.ServiceImportReasonReady, "the service is imported")
	if n := len(in.ForeignSlices); n > 0 {
		ready.Message += fmt.Sprintf("; ignored: %d EndpointSlices of the derived Service that are not Sealane's, the first "+
			"being %s; kube-proxy leads traffic to their addresses: delete them", n, in.ForeignSlices[0])
	}
	if len(families) == 0 {
		ready.Status, ready.Reason = metav1.ConditionFalse, string(mcs.ServiceImportReasonIPFamilyNotSupported)
		ready.Message = "the exporters have " + join(in.Import.Settings.IPFamilies) + ", this cluster has " +
			join(in.Families)
	}
	ready.LastTransitionTime = metav1.NewTime(in.Now)
	if in.ServiceImport != nil {
		ready.ObservedGeneration = in.ServiceImport.Generation
	}
	out.Conditions = []metav1.Condition{ready}
	return out
}

func join(families []corev1.IPFamily) string {
	var out []string
	for _, f := range families {
		out = append(out, string(f))
	}
	return cmp.Or(strings.Join(out, " and "), "none")
}

// steers says whether a label or annotation is one by which Sealane or Karmada steer, and so none to export.
func steers(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	return prefix == v1alpha1.GroupName || strings.HasSuffix(prefix, "."+v1alpha1.GroupName) ||
		prefix == "karmada.io" || strings.HasSuffix(prefix, ".karmada.io") || key == v1alpha1.LabelManagedBy
}

// derivedService is the Service whose ClusterIP is the ClusterSetIP. Every field that the API server would
// default is filled, so that what is in the cluster can be compared with it. It keeps its addresses; if
// somebody deleted it, they come back from the ServiceImport. The first family of a Service cannot change, so
// one whose first family the import has lost is made anew.
func derivedService(in *Input, families []corev1.IPFamily) *corev1.Service {
	out := &corev1.Service{}
	var known []string
	if in.Service != nil {
		known = append(known, in.Service.Spec.ClusterIPs...)
		if p := primary(in.Service); p == "" || p == families[0] {
			out = in.Service.DeepCopy()
			delete(out.Annotations, annotationOrphaned)
		}
	}
	if in.ServiceImport != nil {
		known = append(known, in.ServiceImport.Spec.IPs...)
	}
	out.Namespace, out.Name = in.Key.Namespace, DerivedName(in.Key)
	metav1.SetMetaDataLabel(&out.ObjectMeta, v1alpha1.LabelManagedBy, v1alpha1.ManagedBy)
	metav1.SetMetaDataLabel(&out.ObjectMeta, v1alpha1.LabelImport, in.Key.Name)

	policy, internal := corev1.IPFamilyPolicySingleStack, corev1.ServiceInternalTrafficPolicyCluster
	if len(families) == 2 {
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	if p := in.Import.Settings.InternalTrafficPolicy; p != nil {
		internal = *p
	}
	out.Spec = corev1.ServiceSpec{
		Type:                  corev1.ServiceTypeClusterIP,
		ClusterIPs:            addresses(known, families),
		IPFamilies:            slices.Clone(families),
		IPFamilyPolicy:        &policy,
		SessionAffinity:       in.Import.Settings.SessionAffinity,
		InternalTrafficPolicy: &internal,
	}
	if len(out.Spec.ClusterIPs) > 0 {
		out.Spec.ClusterIP = out.Spec.ClusterIPs[0]
	}
	if out.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		out.Spec.SessionAffinityConfig = affinityConfig(in.Import.Settings.SessionAffinityConfig)
	}
	for _, p := range in.Import.Settings.Ports {
		out.Spec.Ports = append(out.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Protocol: p.Protocol, AppProtocol: clone(p.AppProtocol), Port: p.Port,
			TargetPort: intstr.FromInt32(p.Port),
		})
	}
	return out
}

// primary is the first family of a Service, "" where it has none.
func primary(s *corev1.Service) corev1.IPFamily {
	if s == nil || len(s.Spec.IPFamilies) == 0 {
		return ""
	}
	return s.Spec.IPFamilies[0]
}

// addresses returns one known address of each family, in their order, as far as there are any.
func addresses(known []string, families []corev1.IPFamily) []string {
	var out []string
	for _, f := range families {
		at := slices.IndexFunc(known, func(s string) bool {
			a, ok := parse(s)
			return ok && familyOf(a) == f
		})
		if at < 0 {
			break
		}
		out = append(out, known[at])
	}
	return out
}

func affinityConfig(c *corev1.SessionAffinityConfig) *corev1.SessionAffinityConfig {
	if c != nil {
		return c.DeepCopy()
	}
	timeout := corev1.DefaultClientIPServiceAffinitySeconds
	return &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}}
}

// clone keeps objects that are written at the same time from sharing what the answers are decoded into.
func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
