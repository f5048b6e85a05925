// SPDX-License-Identifier: Apache-2.0

// Package ui draws the map of the network: clusters, their gateways and the cables between them, services and who
// serves whom, and problems. A Map is made by the plugin from what its other commands show; here it is bounded, laid
// out, drawn as a picture, and served to browsers of this machine.
//
// Names and texts of a Map come from members, who are not trusted: bounds are kept by Map.Bounded, the picture escapes
// them, and the page writes them as text only.
package ui
