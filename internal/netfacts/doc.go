// SPDX-License-Identifier: Apache-2.0

// Package netfacts is the one place that decides which prefixes, addresses, ports, keys and MTUs of a cluster
// are valid. The broker applies it to what a member reports, and every node, independently, to what the broker
// tells it: a fact that one of them accepts and the other drops would be a cluster that is shown as a member and
// cannot be reached. It is pure.
package netfacts
