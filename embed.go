// SPDX-License-Identifier: Apache-2.0

// Package sealane embeds what the binaries install: CustomResourceDefinitions (artifacts/crds), the
// workloads of a member cluster (artifacts/deploy) and those of the Karmada host (artifacts/controller).
package sealane

import "embed"

// Artifacts is the tree under artifacts/, with that directory as its first path element.
//
//go:embed artifacts/controller artifacts/crds artifacts/deploy
var Artifacts embed.FS
