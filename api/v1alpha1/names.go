// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// Namespace is where Sealane's own workloads run in every member, and that of the controller's account and Lease on the
// Karmada API.
const Namespace = "sealane-system"

// PeeringName is the name of the one Peering in each member.
const PeeringName = "sealane"

// GatewayLeasePrefix and the name of a gateway's node name the Lease that its node agent renews, in Namespace.
const GatewayLeasePrefix = "sealane-node-"

// ManagedBy is the value of endpointslice.kubernetes.io/managed-by and of
// app.kubernetes.io/managed-by on every object that Sealane writes.
const ManagedBy = "sealane.io"

// MaxSlot is the highest slot of a gateway: a cluster has at most 16, and the cables as many UDP ports.
const MaxSlot = 15

// NextKeySlots is how much higher the numbers of a gateway's cables and their UDP ports are, with the key that follows,
// while the gateway replaces its key.
const NextKeySlots = MaxSlot + 1

// VXLANSlots is how much higher than a gateway's slot the number of its cable by VXLAN is.
const VXLANSlots = 2 * NextKeySlots

// IPsecSlots is the same of its cable by IPsec.
const IPsecSlots = 3 * NextKeySlots

// The shards of a ClusterSet.
const (
	MinShards = 1
	MaxShards = 64
)

// Labels and annotations.
const (
	// LabelGateway on a Node makes it a gateway ("true").
	LabelGateway = "sealane.io/gateway"
	// LabelImport on a derived Service and its EndpointSlices names the imported service.
	LabelImport = "sealane.io/import"
	// AnnotationPublicIP on a gateway Node lists sources of its public address, comma separated:
	// "ipv4:1.2.3.4", "ipv6:2001:db8::1", "dns:name", "lb:service".
	AnnotationPublicIP = "gateway.sealane.io/public-ip"
	// AnnotationForceLeave on a Member ("true") drops a leaving member without its acknowledgement.
	AnnotationForceLeave = "sealane.io/force-leave"
	// AnnotationRotateKeys on a Member is a time (RFC 3339): its gateways replace keys that were made before.
	AnnotationRotateKeys = "sealane.io/rotate-keys"
	// AnnotationExportedLabels and AnnotationExportedAnnotations on a v1alpha1 ServiceExport, which
	// has no spec, stand for spec.exportedLabels and spec.exportedAnnotations (JSON objects).
	AnnotationExportedLabels      = "sealane.io/exported-labels"
	AnnotationExportedAnnotations = "sealane.io/exported-annotations"
)

// MessageExported begins the message of a ServiceExport's condition Ready=True; what is said of it besides follows.
const MessageExported = "exported to the ClusterSet"

// ReasonBundleFull is the reason of Ready=False of a ServiceExport that has no room on its way to the others, and of a
// Problem of the cluster whose exports take too much.
const ReasonBundleFull = "BundleFull"

// BundleName returns the name of a shard's Bundle: "sealane-0", "sealane-1", …
func BundleName(shard int32) string { return "sealane-" + strconv.Itoa(int(shard)) }

// HalfName returns the name of the Bundle of one half of a shard, given that of the shard's own: "sealane-3-01" has the
// services of shard 3 whose HalfHash begins with these bits.
func HalfName(own, bits string) string { return own + "-" + bits }

// ParseBundleName returns the shard of a Bundle, and which half of it that is: none in the shard's own. It is false for
// a name that no Bundle has.
func ParseBundleName(name string) (shard int32, bits string, ok bool) {
	number, bits, half := strings.Cut(strings.TrimPrefix(name, "sealane-"), "-")
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 0 || half && (bits == "" || len(bits) > maxHalfBits || strings.Trim(bits, "01") != "") {
		return 0, "", false
	}
	shard = int32(n)
	return shard, bits, name == BundleName(shard) || half && name == HalfName(BundleName(shard), bits)
}

// BundleOf returns the name of the Bundle that has the import of a service: its shard's own one, or one of the halves
// that this lists; "" where these leave the service out.
func BundleOf(own *Bundle, namespace, name string) string {
	if len(own.Spec.Halves) == 0 {
		return own.Name
	}
	if half := HalfOf(own.Spec.Halves, namespace, name); half != "" {
		return HalfName(own.Name, half)
	}
	return ""
}

// HalfOf returns which of a shard's halves has the import of a service; "" where they leave the service out.
func HalfOf(halves []string, namespace, name string) string {
	bits := fmt.Sprintf("%064b", HalfHash(namespace, name))
	for _, half := range halves {
		if half != "" && strings.HasPrefix(bits, half) {
			return half
		}
	}
	return ""
}

// HalfHash is the hash of a service whose bits, the highest first, say which half of its shard it is in. Broker and
// agents must agree on it.
func HalfHash(namespace, name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(namespace + "/" + name))
	// FNV leaves the high bits of similar names alike: the multiplication mixes them.
	return h.Sum64() * 0x9e3779b97f4a7c15
}

// InForce returns those of a member's Bundles that mean something: the shards' own, and the halves that they list.
func InForce(bundles []Bundle) []Bundle {
	listed := map[string]bool{}
	for i := range bundles {
		if _, bits, ok := ParseBundleName(bundles[i].Name); ok && bits == "" {
			listed[bundles[i].Name] = true
			for _, half := range bundles[i].Spec.Halves {
				listed[HalfName(bundles[i].Name, half)] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(bundles), func(b Bundle) bool { return !listed[b.Name] })
}

// maxHalfBits is how long a prefix is at most.
const maxHalfBits = 16

// Shard returns the shard, from 0, that carries a service: FNV-1a 32 of "<namespace>/<name>" modulo
// shards. Broker and agents must agree on it.
func Shard(namespace, name string, shards int32) int32 {
	if shards < 1 {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(namespace + "/" + name))
	return int32(h.Sum32() % uint32(shards))
}
