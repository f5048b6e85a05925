// SPDX-License-Identifier: Apache-2.0

// Package sealane installs Sealane in a lab the way an administrator would: through the plugin.
package sealane

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/lab"
)

// controllerProcess is the lab's name for the controller.
const controllerProcess = "sealane-controller"

// startAgain runs a program for as long as it lives itself, as a Deployment does: a controller ends when the API does
// not answer for as long as its Lease lasts.
const startAgain = `
trap 'kill $child; wait $child; exit' TERM
while :; do
	setpriv --pdeathsig KILL "$@" &
	child=$!
	wait $child
	sleep 1
done`

// Sealane is an installation in a lab.
type Sealane struct {
	Lab *lab.Lab
	// Out gets what the plugin prints while it installs and removes.
	Out io.Writer
	// Program is the plugin, if it is not the one that Build compiles.
	Program string

	apis apis
}

// Plugin is the path of the plugin's binary.
func (s *Sealane) Plugin() string {
	return cmp.Or(s.Program, filepath.Join(s.Lab.Dir, "bin", "kubectl-karmada-sealane"))
}

// Install builds the plugin and the controller, installs Sealane with the controller as a process of the
// lab, and waits until the members are connected. Repeating it changes nothing.
func (s *Sealane) Install(ctx context.Context) error {
	if err := s.Build(ctx); err != nil {
		return err
	}
	kubeconfig := filepath.Join(s.Lab.Dir, "sealane-controller.kubeconfig")
	install := []string{"install", "--controller=external", "--controller-kubeconfig=" + kubeconfig,
		"--agent-image=" + lab.ImageAgent, "--dns-image=" + lab.ImageDNS}
	if s.Lab.Topology.IPsec {
		install = append(install, "--ipsec", "--ipsec-image="+lab.ImageIPsec)
	}
	// A controller whose identity an uninstall took is of no more use.
	_, err := s.Lab.Kubectl(ctx, "--context", lab.ContextKarmada, "-n", v1alpha1.Namespace, "get", "serviceaccount",
		controllerProcess)
	if err != nil && s.Lab.Running(controllerProcess) {
		if err := s.Lab.StopProcess(ctx, controllerProcess); err != nil {
			return fmt.Errorf("stop the controller of an earlier installation: %w", err)
		}
	}
	if err := s.stream(ctx, io.Discard, append(install, "--wait=false")...); err != nil {
		return err
	}
	// Before the controller first sees the clusters: a member keeps much of what it was accepted with.
	if err := s.configure(ctx); err != nil {
		return fmt.Errorf("clusterSet of the topology: %w", err)
	}
	err = s.Lab.Run(controllerProcess, "sh", "-c", startAgain, controllerProcess,
		filepath.Join(s.Lab.Dir, "bin", "sealane-controller"),
		"--kubeconfig="+kubeconfig, "--metrics-bind-address=0", "--health-probe-bind-address=0")
	if err != nil {
		return fmt.Errorf("start the controller: %w", err)
	}
	return s.stream(ctx, s.Out, install...)
}

// configure puts what the topology says into the spec of the ClusterSet.
func (s *Sealane) configure(ctx context.Context) error {
	if len(s.Lab.Topology.ClusterSet) == 0 {
		return nil
	}
	spec, err := json.Marshal(s.Lab.Topology.ClusterSet)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(spec))
	decoder.DisallowUnknownFields() // which the API server would leave out
	if err := decoder.Decode(&v1alpha1.ClusterSetSpec{}); err != nil {
		return err
	}
	_, err = s.Lab.Kubectl(ctx, "--context", lab.ContextKarmada, "patch", "clusterset", "default", "--type=merge",
		"--patch", fmt.Sprintf(`{"spec":%s}`, spec))
	return err
}

// Build compiles the plugin and the controller into the lab's bin directory.
func (s *Sealane) Build(ctx context.Context) error {
	root, err := lab.SourceRoot(ctx)
	if err != nil {
		return err
	}
	bin := filepath.Join(s.Lab.Dir, "bin") + string(filepath.Separator)
	cmd := exec.CommandContext(ctx, "go", "-C", root, "build", "-trimpath", "-ldflags", "-s -w", "-o", bin,
		"./cmd/kubectl-karmada-sealane", "./cmd/sealane-controller")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the plugin and the controller: %w: %s", err, out)
	}
	return nil
}

// Run runs a command of the plugin against the lab's Karmada and returns what it printed.
func (s *Sealane) Run(ctx context.Context, args ...string) (string, error) {
	out, err := s.command(ctx, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl karmada sealane %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

func (s *Sealane) stream(ctx context.Context, out io.Writer, args ...string) error {
	cmd := s.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("kubectl karmada sealane %v: %w", args, err)
	}
	return nil
}

func (s *Sealane) command(ctx context.Context, args ...string) *exec.Cmd {
	args = append(args, "--kubeconfig="+s.Lab.Kubeconfig(), "--karmada-context="+lab.ContextKarmada)
	return exec.CommandContext(ctx, s.Plugin(), args...)
}
