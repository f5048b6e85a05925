// SPDX-License-Identifier: Apache-2.0

// Package fleet is what the broker's controllers share about clusters: which ClusterSets, clusters and members there
// are, which ClusterSet each cluster belongs to, whether a ClusterSet can be put into force, and when a Work is sent
// anew to a cluster that has not answered it. It holds no reconciler.
package fleet
