// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CableDriver is how gateways of different clusters reach each other.
// +kubebuilder:validation:Enum=wireguard;vxlan;ipsec
type CableDriver string

// The drivers of cables.
const (
	// CableWireGuard is WireGuard, in the kernel where it has the module and in-process otherwise.
	CableWireGuard CableDriver = "wireguard"
	// CableVXLAN is VXLAN, which neither encrypts nor proves who sends. WireGuard stands beside it, for what it does not
	// carry.
	CableVXLAN CableDriver = "vxlan"
	// CableIPsec is IKEv2 and ESP, of strongSwan. Nothing goes by another cable, but for what did so before the pair was
	// to have this one, until it answers.
	CableIPsec CableDriver = "ipsec"
)

// IPsecAlgorithms are those of cables by IPsec, of IKE and of ESP.
// +kubebuilder:validation:Enum=Default;FIPS
type IPsecAlgorithms string

// The choices of algorithms. Both encrypt by AES-GCM with 128 bits.
const (
	// IPsecDefault exchanges keys, and derives the pre-shared ones, by X25519.
	IPsecDefault IPsecAlgorithms = "Default"
	// IPsecFIPS does so by ECDH on the curve P-256. All of it is what FIPS 140 approves.
	IPsecFIPS IPsecAlgorithms = "FIPS"
)

// CableSpec configures the cables between gateways. It is the same in every member of a ClusterSet.
// +kubebuilder:validation:XValidation:rule="!has(self.driver) || self.driver != 'vxlan' || has(self.unencrypted) && self.unencrypted",message="driver vxlan does not encrypt: set unencrypted to true to say that the network between the gateways is trusted, or choose wireguard"
type CableSpec struct {
	// Driver of the cable. With vxlan what passes between clusters can be read, and forged, by whoever is on the way; it
	// goes by wireguard while vxlan does not get through. With ipsec nothing goes by another cable, but what went by
	// wireguard before, until ipsec gets through. A Peering has wireguard here, and each pair's in remoteClusters.
	// +kubebuilder:default=wireguard
	// +optional
	Driver CableDriver `json:"driver,omitempty"`

	// Unencrypted must be true with driver vxlan: what passes between clusters is not encrypted.
	// +optional
	Unencrypted bool `json:"unencrypted,omitempty"`

	// Port is the UDP port for peers of slot 0; those of slot j dial Port+j. Cables by vxlan have Port+33, by ipsec
	// Port+34.
	// +kubebuilder:default=4500
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65000
	// +optional
	Port int32 `json:"port,omitempty"`

	// VXLANPort is the UDP port of the overlay between the nodes of one cluster.
	// +kubebuilder:default=4800
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	VXLANPort int32 `json:"vxlanPort,omitempty"`

	// IPsecAlgorithms of all cables by ipsec; Default where this is not set. With FIPS they have none but what FIPS 140
	// approves, and gateways whose agents do not know it are not reached. Cables by wireguard are not changed by it.
	// +optional
	IPsecAlgorithms IPsecAlgorithms `json:"ipsecAlgorithms,omitempty"`
}

// DNSSpec configures the names that Sealane answers.
type DNSSpec struct {
	// Domains are the zones answered, lower case, without a trailing dot. The first is the
	// clusterset domain of the MCS API.
	// +kubebuilder:default={"clusterset.local"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=200
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +listType=atomic
	// +optional
	Domains []string `json:"domains,omitempty"`

	// ClusterNames says whether <cluster>.<service>.<namespace>.svc.<domain> is answered for
	// ClusterSetIP services. KEP-1645 disallows these names; they serve users of Submariner.
	// +kubebuilder:default=true
	// +optional
	ClusterNames *bool `json:"clusterNames,omitempty"`

	// TTLSeconds is how long a resolver may keep an answer, or a denial, in seconds. A change is in force in every
	// member as soon as it arrives.
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	// +optional
	TTLSeconds *int32 `json:"ttlSeconds,omitempty"`
}

// GatewayMode says how many of a cluster's gateways carry traffic at once.
// +kubebuilder:validation:Enum=ActivePassive;ActiveActive
type GatewayMode string

// The modes of gateways.
const (
	// GatewaysActivePassive: one carries, and another takes over when it fails. What carries goes on until then,
	// also when one of a lower slot returns.
	GatewaysActivePassive GatewayMode = "ActivePassive"
	// GatewaysActiveActive: all that are alive share the flows.
	GatewaysActiveActive GatewayMode = "ActiveActive"
)

// GatewaysSpec configures the gateways of every member.
type GatewaysSpec struct {
	// Mode ActiveActive, the default, spreads flows over all gateways that are alive; ActivePassive uses one.
	// +kubebuilder:default=ActiveActive
	// +optional
	Mode GatewayMode `json:"mode,omitempty"`
}

// KeysSpec says when gateways replace their private keys by themselves.
type KeysSpec struct {
	// MaxAgeDays of a gateway's private key. One that gets older is replaced, without loss of packets. 0, the default, is
	// for ever.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3650
	// +optional
	MaxAgeDays int32 `json:"maxAgeDays,omitempty"`
}

// PeeringKeys says when the gateways of one cluster replace their private keys.
type PeeringKeys struct {
	// MaxAgeDays of a key; 0 is for ever.
	// +optional
	MaxAgeDays int32 `json:"maxAgeDays,omitempty"`
	// NotBefore is when a key must have been made, at the earliest. Somebody has asked for new ones then.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
}

// HealthCheckSpec configures the probes that gateways send through their tunnels.
type HealthCheckSpec struct {
	// IntervalMilliseconds between two probes of a gateway through whose tunnel traffic has passed in the last 10 s, as
	// long as there are no more than 25 of them to probe every 50 ms. The others share 100 probes a second, and each gets
	// one at least. One that owes an answer, or answers again, is probed as often as one with traffic, until it is known
	// to be alive or dead.
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=50
	// +kubebuilder:validation:Maximum=10000
	// +optional
	IntervalMilliseconds int32 `json:"intervalMilliseconds,omitempty"`

	// FailureThreshold is how many probes in a row must stay unanswered before traffic goes by other gateways, if
	// there are any. A connection is reported as lost after a second at least. Times the interval it is 10 s at most.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	FailureThreshold int32 `json:"failureThreshold,omitempty"`
}

// Networks are the address ranges of one cluster, in CIDR notation, masked and sorted.
type Networks struct {
	// PodCIDRs hold every pod address.
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=49
	// +listType=atomic
	// +optional
	PodCIDRs []string `json:"podCIDRs,omitempty"`

	// ServiceCIDRs hold every ClusterIP.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=49
	// +listType=atomic
	// +optional
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`
}

// AddressType says where a candidate address of a gateway comes from.
// +kubebuilder:validation:Enum=Private;Public;LoadBalancer
type AddressType string

// The sources of candidate addresses.
const (
	AddressPrivate      AddressType = "Private"
	AddressPublic       AddressType = "Public"
	AddressLoadBalancer AddressType = "LoadBalancer"
)

// EndpointAddress is one address at which a gateway may be reached. The authenticated handshake, not
// this list, decides which one works.
type EndpointAddress struct {
	Type AddressType `json:"type"`
	// IP is an IPv4 or IPv6 unicast address.
	// +kubebuilder:validation:MaxLength=45
	IP string `json:"ip"`
}

// MaxObserved is at how many addresses that others have seen a gateway is dialled.
const MaxObserved = 4

// ObservedAddress is where a gateway is seen from outside, as a NAT translates its address. It comes from other
// clusters, and is no more than one more address to try.
type ObservedAddress struct {
	// IP is an IPv4 or IPv6 unicast address.
	// +kubebuilder:validation:MaxLength=45
	IP string `json:"ip"`
	// Port is the UDP port that stands for cable.port there: gateways of slot 0 dial it, and none else. Not set where the
	// ports are those that the gateway itself has.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port int32 `json:"port,omitempty"`
}

// Endpoint is one gateway node as the rest of the ClusterSet sees it.
type Endpoint struct {
	// Gateway is the name of the gateway's node, unique in its cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Gateway string `json:"gateway"`

	// Slot is the gateway's stable number in its cluster, from 0. The lowest is the best ranked.
	// A gateway of slot i is dialled on port cable.port+<slot of the dialling gateway>.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=15
	Slot int32 `json:"slot"`

	// PublicKey is the gateway's WireGuard (X25519) public key, base64, 44 characters.
	// +kubebuilder:validation:MaxLength=44
	PublicKey string `json:"publicKey"`

	// NextPublicKey is that of the key which follows, while the gateway replaces its key: the gateway has cables with it
	// on UDP ports that are 16 higher, beside those with publicKey. The same as publicKey, it says that the key has
	// followed, and that these cables are about to go.
	// +kubebuilder:validation:MaxLength=44
	// +optional
	NextPublicKey string `json:"nextPublicKey,omitempty"`

	// IPsecPublicKey is the gateway's other public key, of the curve P-256, which belongs to publicKey and is replaced
	// with it: the uncompressed point (SEC 1), base64, 88 characters. Not set by a gateway without a container for ipsec.
	// +kubebuilder:validation:MaxLength=88
	// +optional
	IPsecPublicKey string `json:"ipsecPublicKey,omitempty"`

	// Addresses are the candidates, most preferred first.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Addresses []EndpointAddress `json:"addresses,omitempty"`

	// Observed is where gateways of other clusters see this one, if that is none of Addresses. The broker adds it; what a
	// gateway says of itself does not count. It is dialled after Addresses, but before those of load balancers.
	// +kubebuilder:validation:MaxItems=4
	// +listType=atomic
	// +optional
	Observed []ObservedAddress `json:"observed,omitempty"`

	// MTU is the largest inner packet that this gateway's cables carry, in bytes.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	MTU int32 `json:"mtu,omitempty"`

	// IPv4Probes says that the gateway's kernel has no IPv6: it probes, and answers probes, by IPv4.
	// +optional
	IPv4Probes bool `json:"ipv4Probes,omitempty"`
}

// ConnectionStatus is what a cluster knows of its tunnel to another.
// +kubebuilder:validation:Enum=Connecting;Connected;Error;Unknown
type ConnectionStatus string

// The states of a connection.
const (
	// ConnectionConnecting: configured, and no probe has been answered yet.
	ConnectionConnecting ConnectionStatus = "Connecting"
	// ConnectionConnected: probes through the tunnel are answered.
	ConnectionConnected ConnectionStatus = "Connected"
	// ConnectionError: probes that were answered before are no longer.
	ConnectionError ConnectionStatus = "Error"
	// ConnectionUnknown: nobody reports of it any more, or yet.
	ConnectionUnknown ConnectionStatus = "Unknown"
)

// Reasons of a connection that is not Connected.
const (
	// ReasonNoAddress: the remote gateway publishes no address that can be dialled from here, and has not dialled.
	ReasonNoAddress = "NoAddress"
	// ReasonRelayNotConnected: the relay by which the remote cluster is reached reports that it does not reach it.
	ReasonRelayNotConnected = "RelayNotConnected"
	// ReasonRelayPassesNothingOn: the relay by which two clusters reach each other is connected to both, and its gateways
	// have nothing in force of what it was told to pass on, or agents that do not know of relays.
	ReasonRelayPassesNothingOn = "RelayPassesNothingOn"
	// ReasonNoHandshake: the remote gateway has not answered at any of its addresses.
	ReasonNoHandshake = "NoHandshake"
	// ReasonNoProbeAnswered: after the handshake no probe has been answered yet.
	ReasonNoProbeAnswered = "NoProbeAnswered"
	// ReasonProbesLost: probes that were answered before are no longer.
	ReasonProbesLost = "ProbesLost"
	// ReasonNotReported: the gateways of a cluster have not said anything of the connection yet.
	ReasonNotReported = "NotReported"
	// ReasonNoGateway: the cluster has no gateway.
	ReasonNoGateway = "NoGateway"
	// ReasonAgentSilent: no node agent of the cluster's gateways is heard of any more.
	ReasonAgentSilent = "AgentSilent"
	// ReasonNoReport: the cluster agent has not reported, or its report answers an older revision.
	ReasonNoReport = "NoReport"
	// ReasonUnanswered: the cluster agent does not answer what it was sent.
	ReasonUnanswered = "Unanswered"
	// ReasonClusterNotReady: Karmada does not reach the cluster, so that its report may be old.
	ReasonClusterNotReady = "ClusterNotReady"
)
