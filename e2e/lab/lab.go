// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ContextKarmada is the kubeconfig context of the Karmada API; a member's
// context is called like the cluster.
const ContextKarmada = "karmada"

// stopGrace is how long a process may take to end before it is killed.
const stopGrace = 10 * time.Second

// Lab is a booted, or half-booted, lab.
type Lab struct {
	// Name is the path of the state directory as the user gave it.
	Name string
	// Dir is the state directory, absolute.
	Dir string
	// Topology is complete: every default is filled in.
	Topology Topology

	layout
	procs processes
	tools tools
}

// state is what Open needs to know, in <dir>/lab.json.
type state struct {
	Index    int      `json:"index"`
	Boot     string   `json:"boot"`
	Topology Topology `json:"topology"`
	Tools    tools    `json:"tools"`
}

// Open returns the lab whose state directory is called name.
func Open(name string) (*Lab, error) {
	dir, err := filepath.Abs(name)
	if err != nil {
		return nil, fmt.Errorf("open lab %s: %w", name, err)
	}
	s, err := readState(dir)
	if err != nil {
		return nil, err
	}
	return newLab(name, dir, s), nil
}

func readState(dir string) (state, error) {
	data, err := os.ReadFile(filepath.Join(dir, "lab.json"))
	if errors.Is(err, os.ErrNotExist) {
		return state{}, fmt.Errorf("open lab: no lab in %s: %w", dir, err)
	}
	if err != nil {
		return state{}, fmt.Errorf("open lab: %w", err)
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return state{}, fmt.Errorf("open lab: %s/lab.json: %w", dir, err)
	}
	return s, nil
}

func newLab(name, dir string, s state) *Lab {
	l := layout{index: s.Index, dir: dir}
	return &Lab{Name: name, Dir: dir, Topology: s.Topology, layout: l, procs: processes{l}, tools: s.Tools}
}

func (l *Lab) save() error {
	s := state{Index: l.index, Boot: bootID(), Topology: l.Topology, Tools: l.tools}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode lab state: %w", err)
	}
	return writeFile(l.path("lab.json"), data, 0o644)
}

// bootID differs after a reboot, which leaves the state directory but nothing
// that it describes.
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// Kubeconfig is the path of a file with the contexts karmada and one per
// cluster. Its servers are reachable from the host and from every node.
func (l *Lab) Kubeconfig() string { return l.path("kubeconfig") }

// RESTConfig is an administrator's access to the API of a context.
func (l *Lab) RESTConfig(context string) (*rest.Config, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: l.Kubeconfig()},
		&clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("context %s: %w", context, err)
	}
	config.QPS, config.Burst = 200, 400
	return config, nil
}

// Contexts lists karmada and the clusters.
func (l *Lab) Contexts() []string {
	contexts := []string{ContextKarmada}
	for _, c := range l.Topology.Clusters {
		contexts = append(contexts, c.Name)
	}
	return contexts
}

func (l *Lab) nodes() []Node {
	var nodes []Node
	for _, c := range l.Topology.Clusters {
		nodes = append(nodes, c.Nodes...)
	}
	return nodes
}

// Netns is the name of a node's network namespace, below /run/netns.
func (l *Lab) Netns(node string) string { return l.nodeNetns(node) }

// NodeAddress is a node's underlay address of a family; the zero value says
// that there is no such node.
func (l *Lab) NodeAddress(node, family string) string {
	for i, c := range l.Topology.Clusters {
		for j, n := range c.Nodes {
			if n.Name == node {
				return l.nodeAddr(family, i, j).String()
			}
		}
	}
	return ""
}

// HostAddress is the address of this machine, IPv4, that is the lab's own, and which every node reaches.
func (l *Lab) HostAddress() string { return l.hostAddr(IPv4).String() }

// InNode runs a command inside a node, with the node's network, mounts and host
// name, and returns its standard output. Standard error is part of the error.
func (l *Lab) InNode(ctx context.Context, node string, argv ...string) ([]byte, error) {
	enter, err := l.procs.enter(node)
	if err != nil {
		return nil, err
	}
	argv = append(enter, argv...)
	return output(ctx, "", argv[0], argv[1:]...)
}

// Kubectl runs the lab's kubectl with its kubeconfig.
func (l *Lab) Kubectl(ctx context.Context, args ...string) ([]byte, error) {
	return output(ctx, "", l.tools.path("kubectl"), append([]string{"--kubeconfig=" + l.Kubeconfig()}, args...)...)
}

// Tool is the path of one of the programs the lab was built with, such as
// kubectl or karmadactl.
func (l *Lab) Tool(name string) string { return l.tools.path(name) }

// Processes lists the names StartProcess and the like take, such as
// karmada-apiserver, c1-apiserver, c1-gw-kubelet.
func (l *Lab) Processes() []string { return l.procs.Names() }

// Program is a process of the lab and its name: that under which the lab started it, or else its command.
type Program struct {
	Name string
	PID  int
}

// Programs lists every process of the lab, those in pods included.
func (l *Lab) Programs() []Program {
	names := map[int]string{}
	for _, name := range l.procs.Names() {
		if p, err := l.procs.Load(name); err == nil && p.alive() {
			names[p.PID] = name
		}
	}
	var all []Program
	for _, p := range l.remaining() {
		all = append(all, Program{Name: cmp.Or(names[p.PID], p.Name), PID: p.PID})
	}
	return all
}

// Running tells whether a process of the lab is alive.
func (l *Lab) Running(name string) bool {
	p, err := l.procs.Load(name)
	return err == nil && p.alive()
}

// Argv is the program and the arguments of a process.
func (l *Lab) Argv(name string) ([]string, error) {
	p, err := l.procs.Load(name)
	return p.Argv, err
}

// LogFile is where the output of a process goes.
func (l *Lab) LogFile(name string) string { return l.procs.LogFile(name) }

// StartProcess starts a stopped process with the arguments it had.
func (l *Lab) StartProcess(name string) error { return l.procs.Start(name) }

// StopProcess ends a process as an administrator would, and waits for its end.
func (l *Lab) StopProcess(ctx context.Context, name string) error {
	return l.procs.Stop(ctx, name, stopGrace)
}

// KillProcess ends a process without giving it notice.
func (l *Lab) KillProcess(ctx context.Context, name string) error {
	return l.procs.Stop(ctx, name, 0)
}
