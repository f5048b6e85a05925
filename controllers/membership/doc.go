// SPDX-License-Identifier: Apache-2.0

// Package membership decides which Karmada clusters belong to which ClusterSet and walks each of them in
// and out: the policies by which the install bundle reaches it, the Member records, leaving with the member's
// acknowledgement, and another look of Karmada's scheduler at ServiceExports that waited for it.
package membership
