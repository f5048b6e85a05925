// SPDX-License-Identifier: Apache-2.0

// Package claim judges what a member claims: networks, node addresses and gateways, by themselves, by what the
// ClusterSet allows and by what other members have. The broker accepts a member by it; a node judges what the broker
// then tells it by dataplane/topology, and a fuzz test shows that the two agree. It is pure, and imports of Karmada
// only API types: a fuzz test is built with every import instrumented, which does not end for Karmada's controllers.
package claim
