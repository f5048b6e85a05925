// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	// plugin is the program, which kubectl finds as "kubectl karmada sealane".
	plugin = "kubectl-karmada-sealane"
	// krewName is what krew links it as: "kubectl sealane".
	krewName = "sealane"
	home     = "https://github.com/sealane-io/sealane"
)

// Platform that the plugin is built for, as Go names operating systems and processors.
type Platform struct{ OS, Arch string }

// Platforms of the plugin.
func Platforms() []Platform {
	var out []Platform
	for _, os := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			out = append(out, Platform{OS: os, Arch: arch})
		}
	}
	return out
}

func (p Platform) String() string { return p.OS + "/" + p.Arch }

// program is the file name of a program on the platform.
func (p Platform) program(name string) string {
	if p.OS == "windows" {
		name += ".exe"
	}
	return name
}

// archive is the file name of the plugin's archive: what the platform opens without further programs.
func (p Platform) archive(version string) string {
	extension := ".tar.gz"
	if p.OS == "windows" {
		extension = ".zip"
	}
	return strings.Join([]string{plugin, version, p.OS, p.Arch}, "-") + extension
}

// completion is the program that kubectl asks how to complete the plugin's command line.
func (p Platform) completion() string {
	if p.OS == "windows" {
		return "kubectl_complete-karmada-sealane.cmd"
	}
	return "kubectl_complete-karmada-sealane"
}

// archivePlugin writes the archive of the plugin for a platform: the program, how to complete it, and the licence.
func (d Distribution) archivePlugin(dir string, p Platform, program string) (path string, err error) {
	path = filepath.Join(dir, p.archive(d.Version))
	return path, write(path, d.Created, []member{
		{name: "LICENSE", mode: 0o644, path: filepath.Join(d.Root, "LICENSE")},
		{name: p.completion(), mode: 0o755, path: filepath.Join(d.Root, "cmd", plugin, "completion", p.completion())},
		{name: p.program(plugin), mode: 0o755, path: program},
	})
}

// krewPlugin is a manifest of krew, by which it installs and upgrades a plugin:
// https://github.com/kubernetes-sigs/krew/blob/v0.4.4/pkg/index/types.go.
type krewPlugin struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       krewSpec          `json:"spec"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	SHA256   string       `json:"sha256"`
	Bin      string       `json:"bin"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// krew returns the manifest, of the archives of all platforms.
func (d Distribution) krew(archives map[Platform]string) ([]byte, error) {
	m := krewPlugin{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin",
		Metadata: map[string]string{"name": krewName},
		Spec: krewSpec{Version: d.Version, Homepage: home,
			ShortDescription: "Connect the clusters of a Karmada control plane",
			Description: "Installs Sealane, the multicluster network of Karmada, lets clusters join and leave, exports\n" +
				"services to other clusters, shows the state of the network and finds what is wrong with it.\n"}}
	for _, p := range Platforms() {
		sum, err := member{name: filepath.Base(archives[p]), path: archives[p]}.sum()
		if err != nil {
			return nil, err
		}
		m.Spec.Platforms = append(m.Spec.Platforms, krewPlatform{
			Selector: krewSelector{MatchLabels: map[string]string{"os": p.OS, "arch": p.Arch}},
			URI:      strings.TrimSuffix(d.URL, "/") + "/" + filepath.Base(archives[p]),
			SHA256:   sum, Bin: p.program(plugin)})
	}
	out, err := yaml.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the manifest of krew: %w", err)
	}
	return out, nil
}
