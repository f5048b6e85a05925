// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// tools is where the programs of Kubernetes, etcd and Karmada are.
type tools struct {
	// Dir holds the programs.
	Dir string `json:"dir"`
	// Karmada is the source of the Karmada module: its CRDs and manifests.
	Karmada string `json:"karmada"`
}

func (t tools) path(name string) string { return filepath.Join(t.Dir, name) }

const (
	kubernetesVersion = "v1.34.2"
	karmadaVersion    = "v1.16.0"
)

// programs maps a program to its package where the two are called differently.
func programs() map[string]string {
	p := map[string]string{"etcd": "go.etcd.io/etcd/server/v3",
		"karmadactl": "github.com/karmada-io/karmada/cmd/karmadactl"}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet",
		"kube-proxy", "kubectl"} {
		p[name] = "k8s.io/kubernetes/cmd/" + name
	}
	for _, name := range []string{"controller-manager", "scheduler", "webhook", "aggregated-apiserver", "agent"} {
		p["karmada-"+name] = "github.com/karmada-io/karmada/cmd/" + name
	}
	return p
}

// linkerFlags strip the programs and give them the versions they report.
func linkerFlags() string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(kubernetesVersion, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	return strings.Join([]string{"-s", "-w",
		"-X k8s.io/component-base/version.gitVersion=" + kubernetesVersion,
		"-X k8s.io/client-go/pkg/version.gitVersion=" + kubernetesVersion,
		"-X k8s.io/component-base/version.gitMajor=" + major,
		"-X k8s.io/component-base/version.gitMinor=" + minor,
		"-X github.com/karmada-io/karmada/pkg/version.gitVersion=" + karmadaVersion,
	}, " ")
}

// SourceRoot is the top directory of the source tree that the working directory is in.
func SourceRoot(ctx context.Context) (string, error) {
	out, err := output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/sealane-io/sealane")
	if err != nil {
		return "", fmt.Errorf("find the source tree: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// cacheDir is shared by all labs of a user.
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory: %w", err)
	}
	return filepath.Join(dir, "sealane"), nil
}

// buildTools makes sure that every program exists, built from exactly the
// versions in e2e/tools; the first time takes minutes, later ones nothing. say
// is told before a build.
func buildTools(ctx context.Context, root string, say func(string)) (tools, error) {
	src := filepath.Join(root, "e2e", "tools")
	cache, err := cacheDir()
	if err != nil {
		return tools{}, err
	}
	key, err := toolsKey(ctx, src)
	if err != nil {
		return tools{}, err
	}
	t := tools{Dir: filepath.Join(cache, "bin", key)}
	if err := os.MkdirAll(filepath.Dir(t.Dir), 0o755); err != nil {
		return tools{}, fmt.Errorf("create the cache directory: %w", err)
	}
	unlock, err := lockFile(filepath.Join(cache, "bin", "lock"))
	if err != nil {
		return tools{}, err
	}
	defer unlock()
	if _, err := os.Stat(t.Dir); errors.Is(err, os.ErrNotExist) {
		say("building Kubernetes, etcd and Karmada: about seven minutes, once")
		if err := compileTools(ctx, src, t.Dir); err != nil {
			return tools{}, err
		}
	}
	out, err := output(ctx, "", "go", "-C", src, "list", "-mod=readonly", "-m", "-f", "{{.Dir}}",
		"github.com/karmada-io/karmada")
	if err != nil {
		return tools{}, fmt.Errorf("find Karmada's source: %w", err)
	}
	t.Karmada = strings.TrimSpace(string(out))
	return t, nil
}

// Tool returns where a program of Kubernetes, etcd or Karmada is. All are built if they are not there yet.
func Tool(ctx context.Context, name string) (string, error) {
	root, err := SourceRoot(ctx)
	if err != nil {
		return "", err
	}
	t, err := buildTools(ctx, root, func(string) {})
	if err != nil {
		return "", err
	}
	return t.path(name), nil
}

// toolsKey changes with anything that changes the programs.
func toolsKey(ctx context.Context, src string) (string, error) {
	h := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			return "", fmt.Errorf("read the tool module: %w", err)
		}
		h.Write(data)
	}
	version, err := output(ctx, "", "go", "-C", src, "env", "GOVERSION", "GOARCH")
	if err != nil {
		return "", fmt.Errorf("find Go's version: %w", err)
	}
	h.Write(version)
	h.Write([]byte(linkerFlags()))
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}

// compileTools builds into a directory elsewhere in the cache, so that dir is
// either complete or absent.
func compileTools(ctx context.Context, src, dir string) error {
	tmp := filepath.Join(filepath.Dir(filepath.Dir(dir)), "build-"+filepath.Base(dir))
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return fmt.Errorf("create %s: %w", tmp, err)
	}
	for name, pkg := range programs() {
		args := []string{"CGO_ENABLED=0", "go", "-C", src, "build", "-trimpath", "-mod=readonly",
			"-ldflags", linkerFlags(), "-o", filepath.Join(tmp, name), pkg}
		if err := run(ctx, "", "env", args...); err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("keep the built programs: %w", err)
	}
	return nil
}
