// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// maxAffinitySeconds is the longest session affinity that a Service can have.
const maxAffinitySeconds = 24 * 3600

// sanitized returns an import without what the API server would refuse in a Service, an EndpointSlice or a
// ServiceImport, so that one bad entry does not cost the whole import. The argument is not changed.
func sanitized(i *v1alpha1.Import) *v1alpha1.Import {
	out := *i
	s := &out.Settings
	if s.Type != v1alpha1.Headless {
		s.Type = v1alpha1.ClusterSetIP
	}
	s.Ports = validPorts(s.Ports)
	if s.SessionAffinity != corev1.ServiceAffinityClientIP {
		s.SessionAffinity, s.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
	}
	if c := s.SessionAffinityConfig; c != nil && (c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil ||
		*c.ClientIP.TimeoutSeconds < 1 || *c.ClientIP.TimeoutSeconds > maxAffinitySeconds) {
		s.SessionAffinityConfig = nil
	}
	if p := s.InternalTrafficPolicy; p != nil && *p != corev1.ServiceInternalTrafficPolicyLocal &&
		*p != corev1.ServiceInternalTrafficPolicyCluster {
		s.InternalTrafficPolicy = nil
	}
	s.Labels = exported(s.Labels, func(k, v string) bool {
		return len(validation.IsQualifiedName(k)) == 0 && len(validation.IsValidLabelValue(v)) == 0
	})
	s.Annotations = exported(s.Annotations, func(k,
		_ string) bool {
		return len(validation.IsQualifiedName(strings.ToLower(k))) == 0
	})
	return &out
}

// validPorts leaves out ports that no Service may have. Of two of one name, or of one number, the first stays.
func validPorts(ports []v1alpha1.ServicePort) []v1alpha1.ServicePort {
	type number struct {
		protocol corev1.Protocol
		port     int32
	}
	names, numbers := map[string]bool{}, map[number]bool{}
	out := make([]v1alpha1.ServicePort, 0, len(ports))
	for _, p := range ports {
		n := number{p.Protocol, p.Port}
		if !validPort(p.Name, p.Protocol, p.Port) || p.Name == "" && len(ports) > 1 || names[p.Name] || numbers[n] {
			continue
		}
		names[p.Name], numbers[n] = true, true
		if p.AppProtocol != nil && len(validation.IsQualifiedName(*p.AppProtocol)) > 0 {
			p.AppProtocol = nil
		}
		out = append(out, p)
	}
	return out
}

func validPort(name string, protocol corev1.Protocol, port int32) bool {
	switch protocol {
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
	default:
		return false
	}
	return port >= 1 && port <= 65535 && (name == "" || len(validation.IsDNS1123Label(name)) == 0)
}

// exported are labels or annotations without those by which Sealane, Karmada and kube-proxy steer.
func exported(m map[string]string, valid func(key, value string) bool) map[string]string {
	var out map[string]string
	for k, v := range m {
		if steers(k) || !valid(k, v) {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[k] = v
	}
	return out
}
