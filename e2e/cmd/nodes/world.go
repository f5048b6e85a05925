// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// gatewayIP is the underlay's own address. Nodes have those after it.
const gatewayIP = "172.31.0.1"

// underlay makes the network between the nodes, in the network namespace of this process. It forwards nothing: what the
// gateways of other clusters are sent is lost.
func underlay(ctx context.Context) error {
	return sh(ctx, "ip link set lo up; ip link add under type bridge; ip addr add "+gatewayIP+"/16 dev under; "+
		"ip link set under up")
}

func sh(ctx context.Context, script string) error {
	if out, err := exec.CommandContext(ctx, "sh", "-ec", script).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", script, err, out)
	}
	return nil
}

// host is the network namespace of a node.
type host struct{ holder *exec.Cmd }

// newHost starts the one of node number n, whose link to the underlay is named as it is.
func newHost(ctx context.Context, name string, n int) (*host, error) {
	holder := exec.CommandContext(context.WithoutCancel(ctx), "sleep", "infinity")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := holder.Start(); err != nil {
		return nil, fmt.Errorf("start a network namespace: %w", err)
	}
	h := &host{holder}
	inside := fmt.Sprintf(`ip link set lo up; ip link set eth0 up; ip addr add %s/16 dev eth0
		ip route add default via %s; ip link add cni0 type bridge; ip link set cni0 up; ip addr add %s dev cni0
		echo 1 > /proc/sys/net/ipv4/ip_forward`, addressOf(n), gatewayIP, strings.Replace(cidrOf(n), ".0/", ".1/", 1))
	if err := sh(ctx, fmt.Sprintf("ip link add %[1]s type veth peer name eth0 netns %[2]d; "+
		"ip link set %[1]s master under up; nsenter -t %[2]d -n sh -ec '%[3]s'",
		name, holder.Process.Pid, inside)); err != nil {
		h.stop()
		return nil, err
	}
	return h, nil
}

func (h *host) stop() {
	_ = h.holder.Process.Kill()
	_ = h.holder.Wait()
}

// relay hands connections on to the API server, and counts what comes from there.
type relay struct {
	listener net.Listener
	bytes    atomic.Int64
}

func newRelay(ctx context.Context, to string) (*relay, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", gatewayIP+":0")
	if err != nil {
		return nil, fmt.Errorf("listen for an agent: %w", err)
	}
	r := &relay{listener: l}
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return // closed
			}
			go r.serve(ctx, from, to)
		}
	}()
	return r, nil
}

func (r *relay) serve(ctx context.Context, from net.Conn, to string) {
	defer func() { _ = from.Close() }()
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() {
		_, _ = io.Copy(server, from)
		_ = server.Close()
	}()
	_, _ = io.Copy(io.MultiWriter(from, counter{&r.bytes}), server)
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// agent is a running one.
type agent struct {
	role  string
	cmd   *exec.Cmd
	relay *relay
	log   string
}

// start runs an agent by a relay of its own; on a host, or on the underlay if that is nil.
func start(ctx context.Context, dir, role string, config *rest.Config, h *host, program string,
	args ...string) (*agent, error) {
	r, err := newRelay(ctx, strings.TrimPrefix(config.Host, "https://"))
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(dir, role+".kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: "https://" + r.listener.Addr().String(),
			InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, kubeconfig); err != nil {
		return nil, fmt.Errorf("write a kubeconfig: %w", err)
	}
	log, err := os.Create(filepath.Join(dir, role+".log"))
	if err != nil {
		return nil, fmt.Errorf("create a log: %w", err)
	}
	defer func() { _ = log.Close() }()
	command := append([]string{program}, append(args, "--kubeconfig="+kubeconfig)...)
	if h != nil {
		command = append([]string{"nsenter", "-t", fmt.Sprint(h.holder.Process.Pid), "-n"}, command...)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	return &agent{role: role, cmd: cmd, relay: r, log: log.Name()}, nil
}

// stop ends the agent and its children. What it left in a network namespace goes with that.
func (a *agent) stop() {
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	ended := make(chan struct{})
	go func() { _ = a.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
	}
	_ = syscall.Kill(-a.cmd.Process.Pid, syscall.SIGKILL)
	<-ended
	_ = a.relay.listener.Close()
}

// tail is the end of an agent's log.
func (a *agent) tail() string {
	text, _ := os.ReadFile(a.log)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
