// SPDX-License-Identifier: Apache-2.0

package conventions

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages are the documents of the source tree, relative to it.
func pages(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "e2e/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, found...)
	}
	if len(out) < 20 {
		t.Fatalf("found %d documents", len(out))
	}
	return out
}

// TestDocumentsNameTestsThatExist: what a document says that a test shows, one does.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	function := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)\w+)\(`)
	there := map[string]bool{}
	for _, file := range goFiles(t) {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range function.FindAllSubmatch(text, -1) {
			there[string(name[1])] = true
		}
	}
	named := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile("`((?:Test|Benchmark)[A-Z]\\w*)`").FindAllSubmatch(text, -1) {
			if named++; !there[string(name[1])] {
				t.Errorf("%s names %s, which is no test", page, name[1])
			}
		}
	}
	if named < 30 {
		t.Errorf("documents name %d tests, expected docs/capabilities.md alone to name more", named)
	}
}

// TestLinksOfDocumentsLeadSomewhere within the source tree, those to a heading too.
func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
	links := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range regexp.MustCompile(`\]\(([^)\s#:]*)(#[^)]*)?\)`).FindAllSubmatch(text, -1) {
			links++
			target := page
			if len(link[1]) > 0 {
				target = filepath.Join(filepath.Dir(page), string(link[1]))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, link[1], err)
				continue
			}
			if anchor := strings.TrimPrefix(string(link[2]), "#"); anchor != "" && filepath.Ext(target) == ".md" &&
				!slices.Contains(anchors(t, target), anchor) {
				t.Errorf("%s links to %s, which has no heading #%s", page, target, anchor)
			}
		}
	}
	if links < 50 {
		t.Errorf("found %d links", links)
	}
}

// anchors of a page are its headings, as GitHub links to them: of words alone, in lower case, with hyphens between.
func anchors(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	prose := regexp.MustCompile("(?ms)^```.*?^```").ReplaceAll(text, nil)
	var out []string
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllSubmatch(prose, -1) {
		words := regexp.MustCompile(`[^\p{L}\p{N}_\- ]`).ReplaceAll(heading[1], nil)
		out = append(out, strings.ReplaceAll(strings.ToLower(string(words)), " ", "-"))
	}
	return out
}

// TestNoProgramIsTracked: who builds into the tree and adds all that is there would have every clone carry it for good.
func TestNoProgramIsTracked(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		t.Skip("the tree is no repository: ", err)
	}
	const most = 1 << 20
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		info, err := os.Stat(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) { // deleted, and not committed yet
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > most {
			t.Errorf("%s has %d bytes, at most %d are expected of a source", name, info.Size(), most)
		}
	}
}
