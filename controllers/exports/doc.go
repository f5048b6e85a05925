// SPDX-License-Identifier: Apache-2.0

// Package exports writes the conditions of a ServiceExport on the Karmada API. Karmada spreads such an
// export to members and gathers no status for it, so the broker sums up what the members and the merge
// say of it.
package exports
