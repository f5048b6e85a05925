// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
)

// bootTimeout bounds what comes after the tools were built. On an idle machine that takes half a minute.
const bootTimeout = 15 * time.Minute

// Options are what Up boots.
type Options struct {
	// Name is the path of the state directory; ".lab" if empty.
	Name string
	// Topology; with no clusters in it that of the existing lab, or else
	// DefaultTopology.
	Topology Topology
	// Out gets a line per step; nothing if nil.
	Out io.Writer
	// Images are further archives to load into every node.
	Images []string

	// toolsDir replaces the built programs.
	toolsDir string
}

// Deps installs the packages and builds the programs that a lab needs and, with tests, those that the
// project's tests need besides.
func Deps(ctx context.Context, out io.Writer, tests bool) error {
	p := newProgress(out)
	if tests {
		if err := p.Step("packages of tests", func() error {
			return installPackages(ctx, testPrograms(),
				p.Line)
		}); err != nil {
			return err
		}
	}
	_, _, err := prepare(ctx, p)
	return err
}

func prepare(ctx context.Context, p *progress) (root string, t tools, err error) {
	if err := p.Step("packages", func() error { return installPackages(ctx, machinePrograms(), p.Line) }); err != nil {
		return "", tools{}, err
	}
	err = p.Step("programs of Kubernetes "+kubernetesVersion+" and Karmada "+karmadaVersion, func() error {
		if root, err = SourceRoot(ctx); err == nil {
			t, err = buildTools(ctx, root, p.Line)
		}
		return err
	})
	return root, t, err
}

// Up boots a lab, or completes and verifies one that exists. On an error the
// lab is left as it is, for its logs; Down removes it.
func Up(ctx context.Context, options Options) (*Lab, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a lab makes network namespaces and runs kubelets: expected root")
	}
	p := newProgress(options.Out)
	root, t, err := prepare(ctx, p)
	if err != nil {
		return nil, err
	}
	if options.toolsDir != "" {
		t.Dir = options.toolsDir
	}
	l, err := claimLab(ctx, options, t)
	if err != nil {
		return nil, err
	}
	unlock, err := lockFile(l.lockPath())
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("not done after %s", bootTimeout))
	defer cancel()
	if err := l.boot(ctx, p, root, options.Images); err != nil {
		return nil, err
	}
	p.Line(fmt.Sprintf("lab %s is up: kubectl --kubeconfig %s --context %s", l.Name, l.Kubeconfig(),
		strings.Join(l.Contexts(), "|")))
	return l, nil
}

// lockPath keeps two commands from working on one lab.
func (l layout) lockPath() string { return filepath.Join(registryDir, l.hostLink()+".lock") }

// claimLab opens the lab of that name or writes down a new one.
func claimLab(ctx context.Context, options Options, t tools) (*Lab, error) {
	if options.Name == "" {
		options.Name = ".lab"
	}
	old, openErr := Open(options.Name)
	if len(options.Topology.Clusters) == 0 {
		options.Topology = DefaultTopology()
		if openErr == nil {
			options.Topology = old.Topology
		}
	}
	topology, err := options.Topology.complete()
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(options.Name)
	if err != nil {
		return nil, fmt.Errorf("lab %s: %w", options.Name, err)
	}
	for _, shadowed := range []string{"/var", "/etc", "/run"} {
		if within(dir, shadowed) {
			return nil, fmt.Errorf("lab %s: a node has its own %s, so the lab cannot be in it", dir, shadowed)
		}
	}
	if openErr == nil {
		if !old.Topology.same(topology) {
			return nil, fmt.Errorf("lab %s exists with another topology: remove it first", dir)
		}
		if !old.stale() {
			return old, nil
		}
		if err := Down(ctx, options.Name, nil); err != nil {
			return nil, fmt.Errorf("remove what a reboot left of %s: %w", dir, err)
		}
	}
	index, err := hostRegistry().Acquire(dir)
	if err != nil {
		return nil, err
	}
	l := newLab(options.Name, dir, state{Index: index, Topology: topology, Tools: t})
	return l, l.save()
}

// stale tells whether the machine was restarted since the lab was booted.
func (l *Lab) stale() bool {
	s, err := readState(l.dir)
	return err == nil && s.Boot != bootID()
}

// boot brings everything up. As soon as a started process dies, everything that
// waits ends with that process's name and the end of its log.
func (l *Lab) boot(ctx context.Context, p *progress, root string, archives []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := p.Step("network", func() error { return l.network(ctx) }); err != nil {
		return err
	}
	if err := p.Step("CNI plugins", func() error { return l.linkPlugins(ctx, root, p) }); err != nil {
		return err
	}
	cas, err := l.credentials()
	if err != nil {
		return err
	}
	if err := l.procs.ForgetDead(); err != nil {
		return err
	}
	if err := l.startEtcd(); err != nil {
		return err
	}
	go l.watchProcesses(ctx, cancel)
	g, ctx := errgroup.WithContext(ctx)
	karmada, images := make(chan struct{}), make(chan struct{})
	g.Go(func() error { return p.Step("Karmada", func() error { return l.bootKarmada(ctx, karmada) }) })
	g.Go(func() error { return p.Step("images", func() error { return l.buildImages(ctx, root, images) }) })
	for i := range l.Topology.Clusters {
		m := member{Lab: l, index: i, ca: cas[i], progress: p}
		g.Go(func() error { return m.bootControlPlane(ctx, karmada) })
		g.Go(func() error { return m.bootNodes(ctx, images, archives) })
	}
	return g.Wait()
}

// credentials makes every authority and certificate, and the kubeconfig. It
// returns the members' authorities.
func (l *Lab) credentials() ([]*authority, error) {
	karmada, err := l.openPKI(ContextKarmada, l.karmadaURL())
	if err != nil {
		return nil, err
	}
	merged, err := karmada.config("admin", ContextKarmada, l.karmadaURL())
	if err != nil {
		return nil, err
	}
	var cas []*authority
	for i, c := range l.Topology.Clusters {
		primary, _ := c.primaryServiceCIDRs()
		ca, err := l.openPKI(c.Name, l.memberURL(i), offset(primary[0], 1))
		if err != nil {
			return nil, err
		}
		one, err := ca.config("admin", c.Name, l.memberURL(i))
		if err != nil {
			return nil, err
		}
		maps.Copy(merged.Clusters, one.Clusters)
		maps.Copy(merged.AuthInfos, one.AuthInfos)
		maps.Copy(merged.Contexts, one.Contexts)
		cas = append(cas, ca)
	}
	data, err := clientcmd.Write(*merged)
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig: %w", err)
	}
	return cas, writeFile(l.Kubeconfig(), data, 0o600)
}

// bootKarmada closes ready once clusters can join.
func (l *Lab) bootKarmada(ctx context.Context, ready chan<- struct{}) error {
	if err := l.startKarmadaAPI(); err != nil {
		return err
	}
	if err := l.apiReady(ctx, ContextKarmada); err != nil {
		return err
	}
	if err := l.startKarmada(ctx); err != nil {
		return err
	}
	close(ready)
	return nil
}

// watchProcesses cancels with the first process that dies.
func (l *Lab) watchProcesses(ctx context.Context, cancel context.CancelCauseFunc) {
	for ctx.Err() == nil {
		if err := l.procs.Revive(); err != nil {
			cancel(err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(300 * time.Millisecond):
		}
	}
}
