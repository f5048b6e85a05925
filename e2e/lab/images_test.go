// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sealane-io/sealane/e2e/release"
)

// TestImagesAreMadeOnce: again only when what they are made of has changed.
func TestImagesAreMadeOnce(t *testing.T) {
	root, err := SourceRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list := DefaultTopology().images()[:1]
	archive := filepath.Join(t.TempDir(), "lab.tar")
	build := func(list []Image) (size int64) {
		t.Helper()
		if err := BuildImages(t.Context(), root, archive, list); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(archive)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	whole := build(list)
	// One that is made again is whole again.
	if err := os.WriteFile(archive, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if again := build(list); again != 0 {
		t.Errorf("nothing has changed, and %d bytes are written", again)
	}
	list[0].Ref = "localhost/sealane/renamed:dev"
	if renamed := build(list); renamed == 0 {
		t.Errorf("an image has changed, and none of %d bytes is written", whole)
	}
	of, err := madeOf(t.Context(), t.TempDir(), list)
	if err == nil {
		t.Errorf("a program that is not there makes %s", of)
	}
}

// TestNodesThatPullHaveNoImageOfSealane but all that the lab runs itself.
func TestNodesThatPullHaveNoImageOfSealane(t *testing.T) {
	every := DefaultTopology()
	every.IPsec = true
	preloaded, pulling := every.images(), Topology{PullImages: true, IPsec: true}.images()
	refs := map[string]bool{}
	for _, image := range pulling {
		refs[image.Ref] = true
	}
	for _, image := range preloaded {
		own := slices.Contains([]string{ImageAgent, ImageController, ImageDNS, ImageIPsec}, image.Ref)
		if refs[image.Ref] == own {
			t.Errorf("%s: preloaded where nodes pull: %t", image.Ref, !own)
		}
	}
	if len(preloaded) != len(pulling)+len(release.Recipes()) {
		t.Errorf("%d images where nodes pull, %d where they do not", len(pulling), len(preloaded))
	}
}
