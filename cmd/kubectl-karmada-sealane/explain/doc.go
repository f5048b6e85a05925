// SPDX-License-Identifier: Apache-2.0

// Package explain follows one packet through the network, hop by hop, and its answer back, and says at which hop it is
// lost and why. It is pure: it goes by objects alone, as Fleet holds them.
//
// It has no rules of its own. What a name is answered with, lighthouse says; which routes, cables and sets a node has,
// dataplane/plan says, from the same objects as the node's agent; which clusters are reached, internal/reach says; and
// which of them serve, internal/choice says. An explanation looks a packet up in these values as the kernel does.
package explain
