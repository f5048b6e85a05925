// SPDX-License-Identifier: Apache-2.0

package release

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// spdx is the part of an SPDX 2.3 document that says what an image is made of.
type spdx struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      spdxCreation   `json:"creationInfo"`
	Packages      []spdxPackage  `json:"packages"`
	Relationships []spdxRelation `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID        string     `json:"SPDXID"`
	Name      string     `json:"name"`
	Version   string     `json:"versionInfo"`
	Location  string     `json:"downloadLocation"`
	Analyzed  bool       `json:"filesAnalyzed"`
	Reference []spdxPURL `json:"externalRefs,omitempty"`
}

type spdxPURL struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelation struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

// writeSBOM lists what an image is made of: the modules that the program says it was built of, and the packages.
func (b Build) writeSBOM(path string, r Recipe, arch, program string, packages []DebianPackage) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("modules of %s: %w", program, err)
	}
	const image = "SPDXRef-image"
	title := "sealane-" + r.Name
	created := b.Created.UTC().Format(time.RFC3339)
	doc := spdx{Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: title + "-" + arch,
		Creation:      spdxCreation{Created: created, Creators: []string{"Tool: sealane-images"}},
		Packages:      []spdxPackage{{ID: image, Name: title, Version: b.Version, Location: "NOASSERTION"}},
		Relationships: []spdxRelation{{Element: "SPDXRef-DOCUMENT", Type: "DESCRIBES", Related: image}}}
	add := func(name, version, purl string) {
		id := fmt.Sprintf("SPDXRef-%d", len(doc.Packages))
		doc.Packages = append(doc.Packages, spdxPackage{ID: id, Name: name, Version: version, Location: "NOASSERTION",
			Reference: []spdxPURL{{Category: "PACKAGE-MANAGER", Type: "purl", Locator: purl}}})
		doc.Relationships = append(doc.Relationships, spdxRelation{Element: image, Type: "CONTAINS", Related: id})
	}
	version := strings.TrimPrefix(info.GoVersion, "go")
	add("stdlib", version, "pkg:golang/stdlib@"+version)
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		add(m.Path, m.Version, "pkg:golang/"+m.Path+"@"+m.Version)
	}
	for _, p := range packages {
		add(p.Name, p.Version, fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", p.Name, p.Version, p.Arch))
	}
	content, err := json.Marshal(doc.Packages)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	doc.Namespace = fmt.Sprintf("https://github.com/sealane-io/sealane/spdx/%s-%s-%x", doc.Name, b.Version,
		sha256.Sum256(content))
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
