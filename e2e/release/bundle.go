// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	// guide is the page that the bundle's INSTALL.md is made of, and example the version that it speaks of.
	guide, example = "docs/airgap.md", "v0.1.0"
	// sumsFile lists all files beside it.
	sumsFile = "SHA256SUMS"
)

// pusher is the file name, in the bundle, of the program that pushes its images.
func pusher(p Platform) string { return p.program("push-" + p.OS + "-" + p.Arch) }

// bundle writes the archive that is carried to where no other network is reached: the images, the plugin, a program
// that pushes the images, and the documents.
func (d Distribution) bundle(dir string, b built, archives map[Platform]string) error {
	name := "sealane-" + d.Version + "-airgap"
	members, err := d.documents()
	if err != nil {
		return err
	}
	lists, err := filepath.Glob(filepath.Join(dir, "*.spdx.json"))
	if err != nil {
		return err
	}
	for _, path := range append(append([]string{}, b.images...), lists...) {
		members = append(members, member{name: "images/" + filepath.Base(path), mode: 0o644, path: path})
	}
	for _, p := range Platforms() {
		members = append(members, member{name: "plugin/" + filepath.Base(archives[p]), mode: 0o644, path: archives[p]})
		if program, ok := b.pushers[p]; ok {
			members = append(members, member{name: pusher(p), mode: 0o755, path: program})
		}
	}
	manifest := krewName + ".yaml"
	members = append(members, member{name: "plugin/" + manifest, mode: 0o644, path: filepath.Join(dir, manifest)})
	list, err := sums(members)
	if err != nil {
		return err
	}
	members = append(members, member{name: sumsFile, mode: 0o644, text: list})
	for i := range members {
		members[i].name = name + "/" + members[i].name
	}
	return write(filepath.Join(dir, name+".tar"), d.Created, members)
}

// documents are those of the source tree, at their places, and the guide of this version.
func (d Distribution) documents() ([]member, error) {
	text, err := os.ReadFile(filepath.Join(d.Root, guide))
	if err != nil {
		return nil, err
	}
	out := []member{{name: "INSTALL.md", mode: 0o644, text: d.install(string(text))}}
	for _, name := range []string{"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md",
		"artifacts/monitoring/alerts.yaml"} {
		out = append(out, member{name: name, mode: 0o644, path: filepath.Join(d.Root, filepath.FromSlash(name))})
	}
	err = fs.WalkDir(os.DirFS(d.Root), "docs", func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			out = append(out, member{name: name, mode: 0o644, path: filepath.Join(d.Root, filepath.FromSlash(name))})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the documents: %w", err)
	}
	return out, nil
}

// link to a file, in Markdown, whose path is the first group.
var link = regexp.MustCompile(`\]\(([^)#:]+)([)#])`)

// install is the guide with this version in the place of the example, and with links from where INSTALL.md is.
func (d Distribution) install(text string) []byte {
	text = link.ReplaceAllStringFunc(strings.ReplaceAll(text, example, d.Version), func(found string) string {
		parts := link.FindStringSubmatch(found)
		return "](" + path.Join(path.Dir(guide), parts[1]) + parts[2]
	})
	return []byte(text)
}
