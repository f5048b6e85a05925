// SPDX-License-Identifier: Apache-2.0

// Package cluster is the agent that speaks for one member cluster. It reads and writes nothing but its own
// API server: the broker's word arrives in the spec of Peering and Bundle, the cluster's answer goes into
// their status, and Karmada carries both.
//
// Each subject is a package of its own, and each has the same shape: the caches are gathered, a pure
// function decides, and what differs is written.
//
//	mcscrds     the MCS kinds, created where missing
//	gateways    nodes → Gateway objects with stable slots
//	discovery   the cluster's pod, service and node networks
//	exports     ServiceExport + Service + EndpointSlices → Export; conditions of ServiceExports
//	imports     Import → ServiceImport, derived Service, EndpointSlices
//	clusterdns  the marked block in CoreDNS's Corefile
//	mailbox     Peering.status and Bundle.status, and the acknowledgement of a leave
package cluster
