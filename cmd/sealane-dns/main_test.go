// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/miekg/dns"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sealane-io/sealane/internal/apiserver"
)

// server reaches the API server of all tests.
var server *rest.Config

func TestMain(m *testing.M) {
	wire()
	dnsserver.Quiet = true
	var crds []string
	for _, find := range []func() (string, error){apiserver.CRDs, apiserver.MCSCRDs} {
		path, err := find()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		crds = append(crds, path)
	}
	os.Exit(apiserver.Main(m, &server, crds...))
}

// Every plugin in the list is in the binary, and every one in the binary is in the list.
func TestDirectivesAreThePlugins(t *testing.T) {
	listed := directives()
	registered := caddy.ListPlugins()["others"]
	for i, name := range registered {
		registered[i] = strings.TrimPrefix(name, "dns.")
	}
	slices.Sort(listed)
	slices.Sort(registered)
	for _, name := range listed {
		if !slices.Contains(registered, name) {
			t.Errorf("%s is listed and not in the binary", name)
		}
	}
	for _, name := range registered {
		if !slices.Contains(listed, name) && !slices.Contains(fromServer(), name) {
			t.Errorf("%s is in the binary and not listed", name)
		}
	}
}

// fromServer names plugins that CoreDNS's server always brings.
func fromServer() []string { return []string{"startup", "shutdown", "on", "import"} }

// serve runs a server until the test ends.
func serve(t *testing.T, corefile string) {
	t.Helper()
	start(t, corefile)
}

// start runs a server until it is stopped or the test ends.
func start(t *testing.T, corefile string) (stop func()) {
	t.Helper()
	instance, err := caddy.Start(caddy.CaddyfileInput{
		Contents: []byte(corefile), Filepath: "Corefile", ServerTypeName: "dns",
	})
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		instance.ShutdownCallbacks()
		if err := instance.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func writeKubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters["c1"] = &clientcmdapi.Cluster{Server: config.Host, InsecureSkipTLSVerify: true}
	k.AuthInfos["c1"] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	k.Contexts["c1"] = &clientcmdapi.Context{Cluster: "c1", AuthInfo: "c1"}
	k.CurrentContext = "c1"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// resolver asks one server.
type resolver struct {
	t       *testing.T
	address string
}

// ask asks over UDP, with EDNS if a size is given.
func (r resolver) ask(name string, qtype, size uint16) *dns.Msg {
	r.t.Helper()
	query := new(dns.Msg).SetQuestion(name, qtype)
	if size > 0 {
		query.SetEdns0(size, false)
	}
	return r.exchange("udp", query)
}

func (r resolver) exchange(network string, query *dns.Msg) *dns.Msg {
	r.t.Helper()
	c := &dns.Client{Net: network, Timeout: 5 * time.Second}
	m, _, err := c.ExchangeContext(r.t.Context(), query, r.address)
	if err != nil {
		r.t.Fatalf("%v over %s: %v", query.Question, network, err)
	}
	return m
}

// addresses of an answer, sorted.
func addresses(m *dns.Msg) string {
	var out []string
	for _, rr := range m.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			out = append(out, rr.A.String())
		case *dns.AAAA:
			out = append(out, rr.AAAA.String())
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// until waits for a condition, and returns how long that took.
func until(t *testing.T, what string, most time.Duration, condition func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		if time.Since(start) > most {
			t.Fatalf("waited %v until %s", most, what)
		}
		<-tick.C
	}
	return time.Since(start)
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
