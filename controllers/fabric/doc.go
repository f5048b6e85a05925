// SPDX-License-Identifier: Apache-2.0

// Package fabric tells every member of a ClusterSet how to reach the others: the status of a member's
// Peering becomes, once it is validated, the member's record, and the records become every other
// member's Peering. Deciding is pure; what a member reports is hostile until it is parsed.
package fabric
