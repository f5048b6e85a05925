// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

const referenceMTU = 1420

// reference is what Sealane is compared with: two network namespaces on the lab's wires, each where a gateway
// is, a wireguard-go device in each and static routes, wired by hand. Behind each is a namespace more, on a
// veth pair as a pod is.
type reference struct {
	// Client and Server are the namespaces with the devices, ClientPod and ServerPod those behind them.
	Client, Server, ClientPod, ServerPod string
	// Target and PodTarget are the servers' addresses.
	Target, PodTarget string
	// Program is the client image's program.
	Program string

	wires     [2]wire
	ends      ends
	dir       string
	processes []*exec.Cmd
	pipes     []io.Closer
}

// wire is where a namespace of the reference is plugged in: a bridge in a namespace, the address that it gets
// there and the router's.
type wire struct{ Netns, Bridge, Address, Router string }

// newReference wires it up, the client's end first. Its programs run in the cgroups of those that they stand
// for: pods count for little on a machine where others are busy, and a reference that counts for more would
// look faster than it is. On an error nothing is left.
func newReference(ctx context.Context, name string, wires [2]wire, ends ends) (ref *reference, err error) {
	ref = &reference{
		wires: wires, ends: ends,
		Client: name + "-bench-a", ClientPod: name + "-bench-pa", Server: name + "-bench-b", ServerPod: name + "-bench-pb",
		Target: "10.201.0.1:8080", PodTarget: "10.201.1.2:8080",
	}
	defer func() { //nolint:contextcheck // what ended the context must not keep it
		if err != nil {
			err = errors.Join(err, ref.Close())
		}
	}()
	if ref.dir, err = os.MkdirTemp("", "sealane-bench-"); err != nil {
		return ref, fmt.Errorf("make a directory: %w", err)
	}
	if _, err := command(ctx, "env", "CGO_ENABLED=0", "go", "-C", "e2e", "build", "-trimpath",
		"-ldflags", "-s -w", "-o", ref.dir+"/",
		"./images/client", "./images/whereami"); err != nil {
		return ref, err
	}
	ref.Program = filepath.Join(ref.dir, "client")
	if err := ref.network(ctx); err != nil {
		return ref, err
	}
	if err := ref.cables(ctx); err != nil {
		return ref, err
	}
	for _, args := range [][]string{
		{"-n", ref.Client, "link", "set", "wg0", "up"},
		{"-n", ref.Server, "link", "set", "wg0", "up"},
		{"-n", ref.Client, "route", "add", "10.201.0.0/16", "dev", "wg0", "src", "10.200.0.1"},
		{"-n", ref.Server, "route", "add", "10.200.0.0/16", "dev", "wg0", "src", "10.201.0.1"},
	} {
		if _, err := command(ctx, "ip", args...); err != nil {
			return ref, err
		}
	}
	server := filepath.Join(ref.dir, "whereami")
	return ref, errors.Join(
		ref.start(ctx, ref.Server, ends.Server, "", server), ref.start(ctx, ref.ServerPod, ends.Server, "", server))
}

func (r *reference) network(ctx context.Context) error {
	for _, end := range []struct {
		netns, own, far string
		wire            wire
	}{
		{r.Client, "10.200.0.1", r.wires[1].Address, r.wires[0]},
		{r.Server, "10.201.0.1", r.wires[0].Address, r.wires[1]},
	} {
		port := end.netns[strings.LastIndex(end.netns, "bench"):]
		for _, args := range [][]string{
			{"netns", "add", end.netns},
			{"-n", end.netns, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", end.wire.Netns},
			{"-n", end.wire.Netns, "link", "set", port, "master", end.wire.Bridge, "up"},
			{"-n", end.netns, "addr", "add", end.wire.Address + "/24", "dev", "eth0"},
			{"-n", end.netns, "addr", "add", end.own + "/32", "dev", "lo"},
			{"-n", end.netns, "link", "set", "lo", "up"},
			{"-n", end.netns, "link", "set", "eth0", "up"},
			{"-n", end.netns, "route", "add", end.far, "via", end.wire.Router},
		} {
			if _, err := command(ctx, "ip", args...); err != nil {
				return err
			}
		}
	}
	return errors.Join(podLink(ctx, r.Client, r.ClientPod, "10.200.1"), podLink(ctx, r.Server, r.ServerPod, "10.201.1"))
}

// podLink puts a namespace behind another, which forwards for it; net is the first three bytes of their subnet.
func podLink(ctx context.Context, node, pod, net string) error {
	for _, args := range [][]string{
		{"netns", "add", pod},
		{"-n", node, "link", "add", "pod0", "type", "veth", "peer", "name", "eth0", "netns", pod},
		{"-n", node, "addr", "add", net + ".1/24", "dev", "pod0"},
		{"-n", pod, "addr", "add", net + ".2/24", "dev", "eth0"},
		{"-n", node, "link", "set", "pod0", "up"},
		{"-n", pod, "link", "set", "eth0", "up"},
		{"-n", pod, "route", "add", "default", "via", net + ".1", "mtu", fmt.Sprint(referenceMTU)},
	} {
		if _, err := command(ctx, "ip", args...); err != nil {
			return err
		}
	}
	_, err := command(ctx, "nsenter", "--net=/run/netns/"+node, "--", "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
	return err
}

// cables starts a device in each namespace, each in a process of its own as Sealane's are.
func (r *reference) cables(ctx context.Context) error {
	a, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	b, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	mtu := fmt.Sprint(referenceMTU)
	return errors.Join(
		r.start(ctx, r.Client, r.ends.ClientCable,
			peerConfig(a, b, 51820, r.wires[1].Address+":51820", "10.201.0.0/16"), self, wireGuardCommand, "wg0", mtu),
		r.start(ctx, r.Server, r.ends.ServerCable,
			peerConfig(b, a, 51820, r.wires[0].Address+":51820", "10.200.0.0/16"), self, wireGuardCommand, "wg0", mtu))
}

// start runs a program in a namespace and a cgroup. With a configuration it waits until the program says that
// it is up. The program ends with this one, whatever happens.
func (r *reference) start(ctx context.Context, netns string, group group, config string, argv ...string) error {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "nsenter", append([]string{"--net=/run/netns/" + netns, "--"},
		argv...)...)
	if config != "" {
		cmd.Stderr = os.Stderr // a server only complains of clients that have had enough
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", argv[0], err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", argv[0], err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", argv[0], err)
	}
	r.processes, r.pipes = append(r.processes, cmd), append(r.pipes, in)
	if err := group.join(cmd.Process.Pid); err != nil {
		return err
	}
	if config == "" {
		return nil
	}
	if _, err := io.WriteString(in, config); err != nil {
		return fmt.Errorf("configure %s: %w", argv[0], err)
	}
	if _, err := newLines(out).until(wireGuardUp); err != nil {
		return fmt.Errorf("start a cable in %s: %w", netns, err)
	}
	return nil
}

// memory is that of the devices' processes.
func (r *reference) memory() []process {
	var found []process
	for i, cmd := range r.processes {
		p := process{Program: "wireguard-go", Place: "reference"}
		if i < 2 && p.read(fmt.Sprintf("/proc/%d", cmd.Process.Pid)) {
			found = append(found, p)
		}
	}
	return found
}

// Close ends the programs and removes the namespaces and with them all links.
func (r *reference) Close() error {
	for _, p := range r.pipes {
		_ = p.Close()
	}
	for _, p := range r.processes {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	var errs []error
	for _, ns := range []string{r.ClientPod, r.ServerPod, r.Client, r.Server} {
		if _, err := os.Stat("/run/netns/" + ns); err != nil {
			continue
		}
		_, err := command(context.Background(), "ip", "netns", "delete", ns)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

// lines reads text up to a line.
type lines struct{ reader *bufio.Reader }

func newLines(r io.Reader) lines { return lines{bufio.NewReader(r)} }

// until returns the lines before the one that equals end.
func (l lines) until(end string) (string, error) {
	var before strings.Builder
	for {
		line, err := l.reader.ReadString('\n')
		if err != nil {
			return "", fmt.Errorf("expected a line %q: %w", end, err)
		}
		if strings.TrimSuffix(line, "\n") == end {
			return before.String(), nil
		}
		before.WriteString(line)
	}
}

// command runs a short command; its standard error is part of the error.
func command(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}
