// SPDX-License-Identifier: Apache-2.0

// Package node is the agent of one node: a single loop that makes the node's kernel hold what the
// cluster's objects ask for, and reports what a gateway sees of the other clusters.
//
// The loop is level-triggered. Events from the API server, from the kernel and from the probes only wake
// it; it then reads everything, plans, compares, changes what differs and reports. It does not act before
// it knows all objects, so that what is merely not loaded yet is never removed.
package node
