// SPDX-License-Identifier: Apache-2.0

// Package propagation turns objects into what Karmada carries: one Work per Peering and Bundle, and the
// install bundle as resource templates with their ClusterPropagationPolicies. It decides nothing.
package propagation
