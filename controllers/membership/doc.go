// SPDX-License-Identifier: Apache-2.0

// Package membership decides which Karmada clusters belong to which ClusterSet and walks each of them in
// and out: the label by which the install bundle reaches it, the Member records, leaving with the member's
// acknowledgement, and the label that lets Karmada's scheduler place ServiceExports.
package membership
