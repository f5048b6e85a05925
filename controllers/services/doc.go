// SPDX-License-Identifier: Apache-2.0

// Package services is the service directory: it merges the exports of all members into the imports of each,
// by the rules of the MCS API (KEP-1645), one shard at a time.
package services
