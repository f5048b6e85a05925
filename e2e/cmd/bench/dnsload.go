// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// dnsClients ask side by side, each one query after the other.
const dnsClients = 8

// dnsLoad is what a server bore.
type dnsLoad struct {
	Rate float64 // answers per second
	P99  time.Duration
}

func rates(loads []dnsLoad) []float64 {
	out := make([]float64, 0, len(loads))
	for _, l := range loads {
		out = append(out, l.Rate)
	}
	return out
}

func p99s(loads []dnsLoad) []float64 {
	out := make([]float64, 0, len(loads))
	for _, l := range loads {
		out = append(out, float64(l.P99.Microseconds()))
	}
	return out
}

// dnsServer is a process that serves clusterset.local.
type dnsServer struct {
	name, address string
	cmd           *exec.Cmd
}

// dnsServers are two processes of sealane-dns: with Sealane's plugin, and with CoreDNS's own.
type dnsServers struct {
	ours, stock *dnsServer
	dir         string
}

func startDNS(ctx context.Context, config *rest.Config) (s *dnsServers, err error) {
	s = &dnsServers{}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "sealane-bench-dns-"); err != nil {
		return s, fmt.Errorf("make a directory: %w", err)
	}
	program, kubeconfig := filepath.Join(s.dir, "sealane-dns"), filepath.Join(s.dir, "kubeconfig")
	if _, err := command(ctx, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program,
		"./cmd/sealane-dns"); err != nil {
		return s, err
	}
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, InsecureSkipTLSVerify: true}
	k.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	k.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	k.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*k, kubeconfig); err != nil {
		return s, fmt.Errorf("write a kubeconfig: %w", err)
	}
	s.ours = &dnsServer{name: "sealane-dns"}
	if err := s.ours.start(ctx, program, s.dir, fmt.Sprintf("lighthouse {\n kubeconfig %s\n}", kubeconfig)); err != nil {
		return s, err
	}
	s.stock = &dnsServer{name: "kubernetes plugin"}
	return s, s.stock.start(ctx, program, s.dir,
		fmt.Sprintf("kubernetes clusterset.local {\n kubeconfig %s\n multicluster clusterset.local\n}", kubeconfig))
}

func (s *dnsServers) stop() {
	for _, server := range []*dnsServer{s.ours, s.stock} {
		if server != nil && server.cmd != nil && server.cmd.Process != nil {
			_ = server.cmd.Process.Kill()
			_ = server.cmd.Wait()
		}
	}
	_ = os.RemoveAll(s.dir)
}

// start runs the program with one plugin on a free port.
func (s *dnsServer) start(ctx context.Context, program, dir, plugin string) error {
	l, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("find a free port: %w", err)
	}
	s.address = l.LocalAddr().String()
	port := l.LocalAddr().(*net.UDPAddr).Port
	if err := l.Close(); err != nil {
		return fmt.Errorf("find a free port: %w", err)
	}
	corefile := filepath.Join(dir, fmt.Sprintf("Corefile-%d", port))
	if err := os.WriteFile(corefile, fmt.Appendf(nil, ".:%d {\nbind 127.0.0.1\n%s\n}\n", port, plugin),
		0o600); err != nil {
		return fmt.Errorf("configure %s: %w", s.name, err)
	}
	s.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, "-quiet", "-conf", corefile)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	return nil
}

func (s *dnsServer) rss() int {
	var p process
	p.read(fmt.Sprintf("/proc/%d", s.cmd.Process.Pid))
	return p.RSS
}

// answers waits until the server knows a name.
func (s *dnsServer) answers(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c := &dns.Client{Timeout: time.Second}
	for {
		answer, _, err := c.ExchangeContext(ctx, new(dns.Msg).SetQuestion(name, dns.TypeA), s.address)
		if err == nil && whole(answer) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("found %s without an address", dns.RcodeToString[answer.Rcode])
		}
		if waitErr := wait(ctx, 100*time.Millisecond); waitErr != nil {
			return fmt.Errorf("%s does not answer %s: %w (%w)", s.name, name, waitErr, err)
		}
	}
}

// load asks for the names in turns for a while.
func (s *dnsServer) load(ctx context.Context, names []string, duration time.Duration) (dnsLoad, error) {
	queries := make([][]byte, len(names))
	for i, name := range names {
		var err error
		if queries[i], err = new(dns.Msg).SetQuestion(name, dns.TypeA).Pack(); err != nil {
			return dnsLoad{}, fmt.Errorf("pack a query: %w", err)
		}
	}
	latencies := make([][]time.Duration, dnsClients)
	var g errgroup.Group
	begin := time.Now()
	for c := range dnsClients {
		g.Go(func() error {
			conn, err := (&net.Dialer{}).DialContext(ctx, "udp", s.address)
			if err != nil {
				return fmt.Errorf("reach %s: %w", s.name, err)
			}
			defer func() { _ = conn.Close() }()
			buffer, query := make([]byte, 512), make([]byte, 512)
			for n := c; time.Since(begin) < duration; n += dnsClients {
				q := query[:copy(query, queries[n%len(queries)])]
				binary.BigEndian.PutUint16(q, uint16(n))
				asked := time.Now()
				if err := ask(conn, q, buffer); err != nil {
					return fmt.Errorf("ask %s: %w", s.name, err)
				}
				latencies[c] = append(latencies[c], time.Since(asked))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return dnsLoad{}, err
	}
	elapsed := time.Since(begin)
	all := slices.Concat(latencies...)
	return dnsLoad{Rate: float64(len(all)) / elapsed.Seconds(), P99: percentile(all, 99)}, nil
}

// ask sends a query and reads its answer, which must have records.
func ask(conn net.Conn, query, buffer []byte) error {
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return fmt.Errorf("set a deadline: %w", err)
	}
	if _, err := conn.Write(query); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	n, err := conn.Read(buffer)
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	const header, answers, rcode = 12, 6, 0x0f
	switch {
	case n < header || buffer[0] != query[0] || buffer[1] != query[1]:
		return errors.New("an answer to another question")
	case buffer[3]&rcode != dns.RcodeSuccess || binary.BigEndian.Uint16(buffer[answers:]) == 0:
		return errors.New("an answer without records")
	}
	return nil
}

// whole says whether an answer has what was asked for.
func whole(m *dns.Msg) bool { return m.Rcode == dns.RcodeSuccess && len(m.Answer) > 0 }
