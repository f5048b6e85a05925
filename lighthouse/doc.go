// SPDX-License-Identifier: Apache-2.0

// Package lighthouse is the CoreDNS plugin that answers the names of the clusterset, as KEP-1645 and its
// DNS schema 1.0.0 define them.
//
//	watch ──▶ index (parsed records, one writer) ──▶ Snapshot (immutable) ──▶ query
//
// The four kinds that a name may depend on are watched in the plugin's own cluster: ServiceImports have the
// ClusterSetIPs, Bundles the exporting clusters' addresses, Gateways say which clusters are disconnected,
// and the Peering has the domains and the name of this cluster. Objects are parsed as they arrive and not
// kept. A query reads the current Snapshot through one atomic pointer: no lock, no API object, no
// allocation but the reply.
package lighthouse
