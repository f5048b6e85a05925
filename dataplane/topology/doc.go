// SPDX-License-Identifier: Apache-2.0

// Package topology turns API objects into one validated, sorted network. It parses rather than
// validates: what leaves it needs no further check, and one bad object becomes a Problem while the rest
// goes on. It is pure: no clock, no logger, no I/O.
package topology
