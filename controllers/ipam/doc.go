// SPDX-License-Identifier: Apache-2.0

// Package ipam gives clusters their blocks of global addresses. It is pure: what it knows of earlier decisions is what
// is written in Members and in the ClusterSet, and the same knowledge leads to the same decision.
package ipam
