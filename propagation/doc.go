// SPDX-License-Identifier: Apache-2.0

// Package propagation turns objects into what Karmada carries: one Work per Peering and Bundle. It decides
// nothing.
package propagation
