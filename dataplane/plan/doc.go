// SPDX-License-Identifier: Apache-2.0

// Package plan says what one node's kernel should hold, as a value, and what to change where it does not.
// For turns the topology and the node's own facts into a Plan, Diff compares it with what is there. Both
// are pure: no clock, no logger, no I/O.
package plan
