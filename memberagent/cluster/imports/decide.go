// SPDX-License-Identifier: Apache-2.0

// Package imports materialises what the broker says this cluster imports: a ServiceImport, a derived
// Service whose ClusterIP is the ClusterSetIP, and EndpointSlices with the chosen clusters' addresses.
package imports

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
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
	"github.com/sealane-io/sealane/memberagent/cluster/index"
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
	// Limited is set where only v1alpha1 of the MCS API is served.
	Limited bool
	Now     time.Time
}

// Decision is what the objects of one import should be.
type Decision struct {
	// ServiceImport, Service and Slices as they should be: nil or not listed means gone. The
	// ServiceImport's addresses are filled in from the Service once that exists.
	ServiceImport *mcs.ServiceImport
	Service       *corev1.Service
	Slices        []discoveryv1.EndpointSlice
	// Again is when to decide anew though nothing has changed; 0 is never.
	Again time.Duration
}

// DerivedName is the name of the derived Service of an import, and the prefix of its EndpointSlices' names.
func DerivedName(key types.NamespacedName) string {
	sum := sha256.Sum256([]byte(key.Namespace + "/" + key.Name))
	return "sl-" + hex.EncodeToString(sum[:5])
}

// Decide is pure.
func Decide(in Input) Decision {
	if in.Import == nil || in.Leaving {
		return gone(&in)
	}
	families := families(&in)
	d := Decision{ServiceImport: serviceImport(&in, families)}
	if len(families) == 0 {
		d.Service, d.Again = orphan(&in)
		return d
	}
	if in.Import.Settings.Type == v1alpha1.Headless {
		d.Service, d.Again = orphan(&in)
	} else {
		d.Service = derivedService(&in, families)
	}
	for _, g := range groups(&in) {
		if slices.Contains(families, corev1.IPFamily(g.family)) {
			d.Slices = append(d.Slices, pack(&in, g)...)
		}
	}
	return d
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

// families are those of the exporters that this cluster has too, in an order that the derived Service, whose
// first family cannot change, already has.
func families(in *Input) []corev1.IPFamily {
	var out []corev1.IPFamily
	for _, f := range in.Import.Settings.IPFamilies {
		if slices.Contains(in.Families, f) && !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	if in.Service != nil && len(out) == 2 && len(in.Service.Spec.IPFamilies) > 0 && out[0] != in.Service.Spec.IPFamilies[0] {
		slices.Reverse(out)
	}
	return out
}

func serviceImport(in *Input, families []corev1.IPFamily) *mcs.ServiceImport {
	i := in.Import
	out := &mcs.ServiceImport{ObjectMeta: metav1.ObjectMeta{
		Namespace: in.Key.Namespace, Name: in.Key.Name,
		Labels: theirs(i.Settings.Labels), Annotations: theirs(i.Settings.Annotations),
	}}
	metav1.SetMetaDataLabel(&out.ObjectMeta, index.ManagedLabel, v1alpha1.ManagedBy)
	metav1.SetMetaDataLabel(&out.ObjectMeta, v1alpha1.LabelImport, in.Key.Name)
	out.Spec = mcs.ServiceImportSpec{
		Type:                  mcs.ServiceImportType(i.Settings.Type),
		Ports:                 make([]mcs.ServicePort, 0, len(i.Settings.Ports)),
		SessionAffinity:       i.Settings.SessionAffinity,
		SessionAffinityConfig: i.Settings.SessionAffinityConfig,
	}
	for _, p := range i.Settings.Ports {
		out.Spec.Ports = append(out.Spec.Ports, mcs.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port})
	}
	if !in.Limited {
		out.Spec.IPFamilies = families
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
	ready := mcs.NewServiceImportCondition(mcs.ServiceImportConditionReady, metav1.ConditionTrue, mcs.ServiceImportReasonReady, "the service is imported")
	if len(families) == 0 {
		ready.Status, ready.Reason = metav1.ConditionFalse, string(mcs.ServiceImportReasonIPFamilyNotSupported)
		ready.Message = "the exporters have " + join(in.Import.Settings.IPFamilies) + ", this cluster has " + join(in.Families)
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

// theirs are exported labels or annotations without those by which Sealane and Karmada steer.
func theirs(m map[string]string) map[string]string {
	var out map[string]string
	for k, v := range m {
		prefix, _, _ := strings.Cut(k, "/")
		if prefix == v1alpha1.GroupName || strings.HasSuffix(prefix, "."+v1alpha1.GroupName) || strings.HasSuffix(prefix, "karmada.io") || k == index.ManagedLabel {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[k] = v
	}
	return out
}

// derivedService is the Service whose ClusterIP is the ClusterSetIP. Every field that the API server would
// default is filled, so that what is in the cluster can be compared with it. It keeps its address; if
// somebody deleted it, the address comes back from the ServiceImport. It is nil for the moment when its
// first family is no longer the import's: that cannot be changed, only made anew.
func derivedService(in *Input, families []corev1.IPFamily) *corev1.Service {
	out := &corev1.Service{}
	switch {
	case in.Service != nil && !slices.Contains(families, primary(in.Service)):
		return nil
	case in.Service != nil:
		out = in.Service.DeepCopy()
		delete(out.Annotations, annotationOrphaned)
	case in.ServiceImport != nil:
		out.Spec.ClusterIPs = restorable(in.ServiceImport.Spec.IPs, families)
	}
	out.Namespace, out.Name = in.Key.Namespace, DerivedName(in.Key)
	metav1.SetMetaDataLabel(&out.ObjectMeta, index.ManagedLabel, v1alpha1.ManagedBy)
	metav1.SetMetaDataLabel(&out.ObjectMeta, v1alpha1.LabelImport, in.Key.Name)

	policy, internal := corev1.IPFamilyPolicySingleStack, corev1.ServiceInternalTrafficPolicyCluster
	if len(families) == 2 {
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	if p := in.Import.Settings.InternalTrafficPolicy; p != nil {
		internal = *p
	}
	ips := out.Spec.ClusterIPs
	if len(ips) > len(families) {
		ips = ips[:len(families)]
	}
	out.Spec = corev1.ServiceSpec{
		Type:                  corev1.ServiceTypeClusterIP,
		ClusterIPs:            ips,
		IPFamilies:            families,
		IPFamilyPolicy:        &policy,
		SessionAffinity:       cmp.Or(in.Import.Settings.SessionAffinity, corev1.ServiceAffinityNone),
		InternalTrafficPolicy: &internal,
	}
	if len(ips) > 0 {
		out.Spec.ClusterIP = ips[0]
	}
	if out.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		out.Spec.SessionAffinityConfig = affinityConfig(in.Import.Settings.SessionAffinityConfig)
	}
	for _, p := range in.Import.Settings.Ports {
		out.Spec.Ports = append(out.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port, TargetPort: intstr.FromInt32(p.Port),
		})
	}
	return out
}

func primary(s *corev1.Service) corev1.IPFamily {
	if len(s.Spec.IPFamilies) == 0 {
		return ""
	}
	return s.Spec.IPFamilies[0]
}

func affinityConfig(c *corev1.SessionAffinityConfig) *corev1.SessionAffinityConfig {
	if c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		return c
	}
	timeout := corev1.DefaultClientIPServiceAffinitySeconds
	return &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}}
}

// restorable are the recorded addresses if they are of the families wanted, in order.
func restorable(ips []string, families []corev1.IPFamily) []string {
	if len(ips) > len(families) {
		return nil
	}
	for i, s := range ips {
		a, err := netip.ParseAddr(s)
		if err != nil || corev1.IPFamily(familyOf(a)) != families[i] {
			return nil
		}
	}
	return ips
}
