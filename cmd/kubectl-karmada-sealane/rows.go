// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// The rows of show's tables; their JSON is what -o json and -o yaml print.

type clusterSetRow struct {
	Name      string `json:"name"`
	Members   int32  `json:"members"`
	Accepted  int32  `json:"acceptedMembers"`
	Connected int32  `json:"connectedMembers"`
	// Pairs of accepted members, and how many of them are connected.
	Pairs          int32  `json:"pairs"`
	ConnectedPairs int32  `json:"connectedPairs"`
	Ready          string `json:"ready"`
	Driver         string `json:"driver"`
	// UnencryptedPairs are those to be reached by a cable that does not encrypt.
	UnencryptedPairs int32              `json:"unencryptedPairs,omitempty"`
	Domains          []string           `json:"domains,omitempty"`
	Problems         []v1alpha1.Problem `json:"problems,omitempty"`
}

func (r clusterSetRow) cells() []string {
	var problems []string
	for _, p := range r.Problems {
		problems = append(problems, strings.TrimPrefix(p.Cluster+": "+p.Message, ": "))
	}
	driver := r.Driver
	if r.UnencryptedPairs > 0 {
		driver += fmt.Sprintf(", %d pairs NOT ENCRYPTED", r.UnencryptedPairs)
	}
	return []string{r.Name, number(r.Members), number(r.Accepted), number(r.Connected),
		number(r.ConnectedPairs) + "/" + number(r.Pairs), r.Ready, list(problems), driver,
		list(r.Domains)}
}

type connectionRow struct {
	Cluster       string `json:"cluster"`
	Gateway       string `json:"gateway,omitempty"`
	RemoteCluster string `json:"remoteCluster,omitempty"`
	RemoteGateway string `json:"remoteGateway,omitempty"`
	Slot          int32  `json:"remoteSlot"`
	Address       string `json:"address,omitempty"`
	NAT           bool   `json:"nat"`
	Link          string `json:"link,omitempty"`
	Cable         string `json:"cable,omitempty"`
	Algorithms    string `json:"algorithms,omitempty"`
	// Through is the relay by which that cluster is reached; remoteGateway, address and link are of the tunnel to it.
	Through     string        `json:"through,omitempty"`
	Active      bool          `json:"active"`
	Status      string        `json:"status"`
	RTT         *v1alpha1.RTT `json:"rtt,omitempty"`
	LossPercent *int32        `json:"lossPercent,omitempty"`
	// Traffic of the tunnel, without probes.
	Traffic *v1alpha1.Traffic `json:"traffic,omitempty"`
	// Coarse is what the broker knows of all tunnels to that cluster, of a member that cannot be asked.
	Coarse  *v1alpha1.Measurements `json:"coarse,omitempty"`
	MTU     int32                  `json:"mtu,omitempty"`
	Reason  string                 `json:"reason,omitempty"`
	Message string                 `json:"message,omitempty"`
	// LastTransitionTime is when the status last changed.
	LastTransitionTime string `json:"lastTransitionTime,omitempty"`
	// UnknownSince is the time of the last report, of a gateway that is not heard of: it is not known whether the tunnel
	// is active, and how it fares.
	UnknownSince string `json:"unknownSince,omitempty"`
	// age of the status.
	age string
}

func (r connectionRow) cells() []string {
	nat, active, loss, rtt, spread, received, sent := "", "", "", "", "", "", ""
	if r.Gateway != "" {
		nat, active = yesNo(r.NAT), yesNo(r.Active)
	}
	if r.UnknownSince != "" {
		active = ""
	}
	if r.LossPercent != nil {
		loss = number(*r.LossPercent) + "%"
	}
	if r.RTT != nil {
		rtt = milliseconds(r.RTT.Avg) + "ms"
		spread = strings.Join([]string{milliseconds(r.RTT.Min), milliseconds(r.RTT.Max), milliseconds(r.RTT.Dev)}, "/") + "ms"
	}
	if t := r.Traffic; t != nil {
		received, sent = perSecond(t.ReceivedBytesPerSecond), perSecond(t.SentBytesPerSecond)
	}
	if c := r.Coarse; c != nil {
		rtt, loss = coarseRTT(c.RTTMicroseconds), about+number(c.LossPercent)+"%"
		if t := c.Traffic; t != nil {
			received, sent = about+perSecond(t.ReceivedBytesPerSecond), about+perSecond(t.SentBytesPerSecond)
		}
	}
	return []string{r.Cluster, r.Gateway, r.RemoteCluster, r.RemoteGateway, r.Address, nat, r.Status, rtt, loss, r.Message,
		active, r.Link, spread, received, sent, r.age, r.Algorithms}
}

// about marks what is rounded to a step.
const about = "~"

// coarseRTT writes a round-trip time that is a step of internal/coarse.
func coarseRTT(us int64) string {
	if us == 0 {
		return ""
	}
	return about + strconv.FormatFloat(float64(us)/1000, 'f', -1, 64) + "ms"
}

// perSecond writes a rate with two digits.
func perSecond(bytes int64) string {
	value, unit := float64(bytes), 0
	units := []string{"B/s", "kB/s", "MB/s", "GB/s", "TB/s"}
	for ; value >= 1000 && unit < len(units)-1; unit++ {
		value /= 1000
	}
	if value < 10 && unit > 0 {
		return strings.TrimSuffix(strconv.FormatFloat(value, 'f', 1, 64), ".0") + units[unit]
	}
	return strconv.FormatFloat(value, 'f', 0, 64) + units[unit]
}

type addressRow struct {
	Type string `json:"type"`
	IP   string `json:"ip"`
	// Port of an address of the type Observed, where that is not the gateway's own.
	Port int32 `json:"port,omitempty"`
}

// typeObserved is the type of an address at which others see a gateway that does not publish it.
const typeObserved = "Observed"

type endpointRow struct {
	Cluster        string       `json:"cluster"`
	Gateway        string       `json:"gateway"`
	Slot           int32        `json:"slot"`
	Addresses      []addressRow `json:"addresses,omitempty"`
	Implementation string       `json:"implementation,omitempty"`
	MTU            int32        `json:"mtu"`
	PublicKey      string       `json:"publicKey"`
}

func (r endpointRow) cells() []string {
	private, others := []string{}, []string{}
	for _, a := range r.Addresses {
		switch a.Type {
		case string(v1alpha1.AddressPrivate):
			private = append(private, a.IP)
		case typeObserved:
			at := a.IP
			if a.Port != 0 {
				at = net.JoinHostPort(a.IP, number(a.Port))
			}
			others = append(others, at+" (observed)")
		default:
			others = append(others, a.IP)
		}
	}
	return []string{r.Cluster, r.Gateway, number(r.Slot), list(private), list(others), r.Implementation,
		number(r.MTU), r.PublicKey}
}

type rollOutRow struct {
	Cluster string `json:"cluster"`
	// State is where the member stands; "Unknown" of one that does not tell, "NotMember" of a canary
	// that is none.
	State string `json:"state"`
	// Updated nodes, of how many.
	Updated int32 `json:"updatedNodes"`
	Nodes   int32 `json:"nodes"`
	// Since is for how long no more nodes have had new agents.
	Since    string `json:"since,omitempty"`
	Message  string `json:"message,omitempty"`
	Revision string `json:"revision,omitempty"`
	LastNode string `json:"lastNode,omitempty"`
}

func (r rollOutRow) cells() []string {
	return []string{r.Cluster, r.State, number(r.Updated) + "/" + number(r.Nodes), r.Since, r.Message,
		r.Revision, r.LastNode}
}

type gatewayRow struct {
	Cluster string `json:"cluster"`
	Gateway string `json:"gateway,omitempty"`
	Slot    int32  `json:"slot"`
	// HAState and Ready are Unknown of a gateway that is not heard of, UnknownSince the time of its last report.
	HAState        string `json:"haState"`
	Ready          string `json:"ready,omitempty"`
	UnknownSince   string `json:"unknownSince,omitempty"`
	Implementation string `json:"implementation,omitempty"`
	Version        string `json:"version,omitempty"`
	Summary        string `json:"summary"`
	// Key is the phase of the gateway's key, with how far the others are, and KeyMadeAt when it was made.
	Key       string `json:"key,omitempty"`
	KeyMadeAt string `json:"keyMadeAt,omitempty"`
	FlowHash  string `json:"flowHash,omitempty"`
}

func (r gatewayRow) cells() []string {
	slot := ""
	if r.Gateway != "" {
		slot = number(r.Slot)
	}
	return []string{r.Cluster, r.Gateway, slot, r.HAState, r.Ready, r.Implementation, r.Key, r.Summary, r.Version,
		r.KeyMadeAt, r.FlowHash}
}

type networkRow struct {
	Cluster      string   `json:"cluster"`
	ClusterSet   string   `json:"clusterSet"`
	PodCIDRs     []string `json:"podCIDRs,omitempty"`
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`
	GlobalCIDR   string   `json:"globalCIDR,omitempty"`
	// GlobalIPv6CIDR is what that block has of IPv6.
	GlobalIPv6CIDR string `json:"globalIPv6CIDR,omitempty"`
	// OverlappingClusters know the cluster by its global CIDR, and so do all if GlobalScope is All.
	GlobalScope         string   `json:"globalScope,omitempty"`
	OverlappingClusters []string `json:"overlappingClusters,omitempty"`
	NodeCIDRs           []string `json:"nodeCIDRs,omitempty"`
	Accepted            string   `json:"accepted"`
	Message             string   `json:"message,omitempty"`
}

func (r networkRow) cells() []string {
	blocks := slices.DeleteFunc([]string{r.GlobalCIDR, r.GlobalIPv6CIDR}, func(text string) bool { return text == "" })
	return []string{r.Cluster, list(r.PodCIDRs), list(r.ServiceCIDRs), list(blocks), r.Accepted, r.Message, r.ClusterSet,
		list(r.NodeCIDRs), list(r.OverlappingClusters)}
}

type versionRow struct {
	Component string `json:"component"`
	Cluster   string `json:"cluster,omitempty"`
	Version   string `json:"version,omitempty"`
	Image     string `json:"image,omitempty"`
	Message   string `json:"message,omitempty"`
}

func (r versionRow) cells() []string {
	return []string{r.Component, r.Cluster, r.Version, r.Message, r.Image}
}

func number(n int32) string { return strconv.Itoa(int(n)) }

func list(items []string) string { return strings.Join(items, ",") }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func milliseconds(us int64) string { return fmt.Sprintf("%.2f", float64(us)/1000) }
