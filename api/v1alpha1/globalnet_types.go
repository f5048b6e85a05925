// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GlobalnetMode says whether a cluster has a block of global addresses.
// +kubebuilder:validation:Enum=Off;Auto;On
type GlobalnetMode string

// The modes of global addresses.
const (
	// GlobalnetOff: the cluster has none. If it overlaps a cluster accepted earlier it is refused.
	GlobalnetOff GlobalnetMode = "Off"
	// GlobalnetAuto: the cluster gets a block when it overlaps a cluster accepted earlier, and is known by it to
	// all others. That one gets a block too if it has none, and is known by it to those that it overlaps, and as before
	// to all others.
	GlobalnetAuto GlobalnetMode = "Auto"
	// GlobalnetOn: the cluster gets a block when it joins, and is known by it to all others.
	GlobalnetOn GlobalnetMode = "On"
)

// GlobalnetSpec configures global addresses, by which clusters whose networks overlap reach each other.
type GlobalnetSpec struct {
	// Mode of the clusters for which spec.clusters states none. A member that is accepted keeps what it has: it
	// has to leave and to join for another mode.
	// +kubebuilder:default=Off
	// +optional
	Mode GlobalnetMode `json:"mode,omitempty"`

	// CIDRs are the pool that blocks are taken from. No cluster's networks may overlap them. The default is part of a
	// range that nobody uses (RFC 1112) and that Linux routes.
	// +kubebuilder:default={"242.0.0.0/8"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=18
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c) && cidr(c).ip().family() == 4 && cidr(c).masked() == cidr(c))",message="cidrs holds IPv4 networks in CIDR notation without host bits, such as 242.0.0.0/8"
	// +listType=atomic
	// +optional
	CIDRs []string `json:"cidrs,omitempty"`

	// BlockPrefixLength is the length of the prefix of each cluster's block: 16 gives a cluster 32767 addresses for
	// services, and each of its gateways 2047 to send from.
	// +kubebuilder:default=16
	// +kubebuilder:validation:Minimum=8
	// +kubebuilder:validation:Maximum=26
	// +optional
	BlockPrefixLength int32 `json:"blockPrefixLength,omitempty"`

	// IPv6CIDR is the pool of IPv6: a /48 of fd00::/8 that no cluster's networks may overlap. Each cluster that has a
	// block has a part of this too, which its block alone determines: a block of /16 has a /64. A member that is accepted
	// keeps what it has.
	// +kubebuilder:default="fd5e:a1a4:e242::/48"
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self).ip().family() == 6 && cidr(self).masked() == cidr(self) && cidr(self).prefixLength() == 48 && cidr('fd00::/8').containsCIDR(cidr(self))",message="ipv6CIDR is a /48 of fd00::/8 without host bits, such as fd5e:a1a4:e242::/48"
	// +optional
	IPv6CIDR string `json:"ipv6CIDR,omitempty"`
}

// GlobalnetOverride is what is stated of one cluster's global addresses.
type GlobalnetOverride struct {
	// Mode takes the place of spec.globalnet.mode.
	// +optional
	Mode GlobalnetMode `json:"mode,omitempty"`
	// CIDR is the cluster's block, in or outside of the pool, of any length from 8 to 26. It is not used while the mode
	// is Off.
	// +kubebuilder:validation:MaxLength=18
	// +kubebuilder:validation:XValidation:rule="self == '' || (isCIDR(self) && cidr(self).ip().family() == 4 && cidr(self).masked() == cidr(self))",message="cidr is an IPv4 network in CIDR notation without host bits, such as 242.1.0.0/16"
	// +optional
	CIDR string `json:"cidr,omitempty"`
}

// GlobalScope says to which clusters a cluster is known by its block of global addresses.
// +kubebuilder:validation:Enum="";All;Overlapping
type GlobalScope string

// The scopes of a block.
const (
	// GlobalToAll: to all others.
	GlobalToAll GlobalScope = "All"
	// GlobalToOverlapping: to those that its own networks overlap.
	GlobalToOverlapping GlobalScope = "Overlapping"
)

// GlobalBlock is a block of global addresses that a cluster has or had.
type GlobalBlock struct {
	// Cluster that the block is for.
	Cluster string `json:"cluster"`
	// CIDR of the block.
	CIDR string `json:"cidr"`
	// KeptUntil is when the block of a cluster that left may be given to another: seven days after it left, and not
	// before every member has answered that it does not route it any more. Not set while the cluster has the block.
	// +optional
	KeptUntil *metav1.Time `json:"keptUntil,omitempty"`
}
