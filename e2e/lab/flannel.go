// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	flannelVersion = "v0.26.7"
	// flannelPlugin is the CNI plugin flannel, in the last version of containernetworking's own repository.
	flannelPlugin = "github.com/containernetworking/plugins/plugins/meta/flannel@v0.9.1"
	// flannelUser is flanneld's name at the API server.
	flannelUser = "system:flannel"
)

// buildFlannel makes sure that flanneld and its CNI plugin exist and returns their directory. say is told before a
// build. Go's checksum database vouches for the sources.
func buildFlannel(ctx context.Context, say func(string)) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	_, plugin, _ := strings.Cut(flannelPlugin, "@")
	dir := filepath.Join(cache, "flannel", flannelVersion+"-"+plugin+"-"+runtime.GOARCH)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("create the cache directory: %w", err)
	}
	unlock, err := lockFile(filepath.Join(cache, "flannel", "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		return dir, err
	}
	say("building flannel " + flannelVersion + ": about a minute, once")
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "build-")
	if err != nil {
		return "", fmt.Errorf("create build directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := compileFlannel(ctx, tmp); err != nil {
		return "", fmt.Errorf("build flannel: %w", err)
	}
	if err := os.Rename(filepath.Join(tmp, "bin"), dir); err != nil {
		return "", fmt.Errorf("keep the built programs: %w", err)
	}
	return dir, nil
}

// compileFlannel builds in a directory; the programs are in its subdirectory bin. flanneld goes without its backend
// udp, which needs a C compiler.
func compileFlannel(ctx context.Context, dir string) error {
	const script = `set -eu
export CGO_ENABLED=0 GOBIN="$1/bin"
cd "$1"
go install -trimpath -ldflags "-s -w" "$2"
echo module download >go.mod
module=$(go mod download -json "github.com/flannel-io/flannel@$3" | sed -n 's/^.*"Dir": "\(.*\)".*$/\1/p')
cp -r "$module" flanneld
chmod -R u+w flanneld
sed -i '/backend\/udp"$/d' flanneld/main.go
go build -C flanneld -trimpath -mod=readonly -ldflags "-s -w" -o "$1/bin/flanneld" .
`
	return run(ctx, script, "sh", "-s", dir, flannelPlugin, flannelVersion)
}

// linkPlugins makes a directory of the lab with the machine's CNI plugins, flannel's and the lab's own.
func (l *Lab) linkPlugins(ctx context.Context, root string, p *progress) error {
	var own []string
	if l.Topology.uses(CNIMacvlan) {
		err := run(ctx, "", "env", "CGO_ENABLED=0", "go", "-C", filepath.Join(root, "e2e"), "build", "-trimpath", "-o",
			l.path("cni")+"/", "./cni/hostveth")
		if err != nil {
			return fmt.Errorf("build a CNI plugin: %w", err)
		}
	}
	if l.Topology.uses(CNIFlannel) {
		flannel, err := buildFlannel(ctx, p.Line)
		if err != nil {
			return err
		}
		own = []string{filepath.Join(flannel, "flannel"), filepath.Join(flannel, "flanneld")}
	}
	all, err := filepath.Glob(filepath.Join(cniPlugins, "*"))
	if err != nil {
		return fmt.Errorf("list the CNI plugins: %w", err)
	}
	if err := os.MkdirAll(l.path("cni"), 0o755); err != nil {
		return fmt.Errorf("create the directory of CNI plugins: %w", err)
	}
	for _, program := range append(all, own...) {
		err := os.Symlink(program, l.path("cni", filepath.Base(program)))
		if err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("link a CNI plugin: %w", err)
		}
	}
	return nil
}

// startFlannel starts flanneld on a node that is registered, and waits until its CNI plugin can work.
func (l *Lab) startFlannel(ctx context.Context, i, j int, ca *authority) error {
	c, f := l.Topology.Clusters[i], l.facts(i, j)
	if c.CNI != CNIFlannel {
		return nil
	}
	identity := f.Name + "-flannel"
	if err := ca.Issue(identity, pkix.Name{CommonName: flannelUser}, nil, nil); err != nil {
		return err
	}
	if err := ca.Kubeconfig(identity, c.Name, l.memberURL(i)); err != nil {
		return err
	}
	err := l.procs.Ensure(process{Name: f.Name + "-flanneld", Node: f.Name, Namespaces: nsAll, Argv: []string{
		"env", "NODE_NAME=" + f.Name, l.path("cni", "flanneld"),
		"--kube-subnet-mgr",
		"--kubeconfig-file=" + l.path("pki", c.Name, identity+".kubeconfig"),
		"--net-config-path=/etc/kube-flannel/net-conf.json",
		"--iface=eth0",
		"--ip-masq",
	}})
	if err != nil {
		return err
	}
	return poll(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		_, err := l.InNode(ctx, f.Name, "test", "-e", "/run/flannel/subnet.env")
		return err
	})
}
