// SPDX-License-Identifier: Apache-2.0

// Package ipsec has strongSwan encrypt between gateways. Its daemon, charon, runs beside the agent, in a container of
// its own, with the network namespace and a directory in common: Charon starts it there, and Daemon drives it by its
// VICI socket. For each remote gateway it has one pair of security associations, from the outer address of one
// gateway's cables to that of the other; they go by the carrier, the link that charon makes. What both ends have in
// common is derived from the nodes' keys: nothing secret is distributed.
package ipsec

// Files of the directory that agent and charon have in common.
const (
	// portFile holds the UDP port that charon is to have; 0 is that it is to be no more. While there is none, charon does
	// not run.
	portFile = "port"
	// deviceFile holds the name of charon's link, and failedFile why charon ended.
	deviceFile = "device"
	failedFile = "failed"
	socketFile = "vici.sock"
	configFile = "strongswan.conf"
)
