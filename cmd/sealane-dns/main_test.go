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
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/apiserver"
)

func TestMain(m *testing.M) {
	wire()
	os.Exit(m.Run())
}

// endpoints of the headless service in the test: more than a datagram carries.
const endpoints = 300

// The server with the Corefile that members get, reading a real API server, over UDP and TCP.
func TestServer(t *testing.T) {
	config := startAPIServer(t)
	populate(t, config)
	port, ready, metrics := freePort(t), freePort(t), freePort(t)
	serve(t, fmt.Sprintf(`.:%s {
    bind 127.0.0.1
    errors
    ready 127.0.0.1:%s
    prometheus 127.0.0.1:%s
    lighthouse {
        kubeconfig %s
    }
}
`, port, ready, metrics, writeKubeconfig(t, config)))
	if body := get(t, "http://127.0.0.1:"+ready+"/ready"); body != "OK" {
		t.Errorf("ready says %q", body)
	}
	udp, tcp := &dns.Client{Net: "udp"}, &dns.Client{Net: "tcp"}
	address := "127.0.0.1:" + port

	m := exchange(t, udp, address, "CS.sample.svc.clusterset.local.", dns.TypeA, 0)
	if len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != "10.88.1.1" || !m.Authoritative {
		t.Errorf("the ClusterSetIP: %v", m)
	}
	m = exchange(t, udp, address, "big.sample.svc.clusterset.local.", dns.TypeA, 0)
	if !m.Truncated || len(m.Answer) == 0 {
		t.Errorf("%d of %d endpoints over UDP, truncated %v", len(m.Answer), endpoints, m.Truncated)
	}
	m = exchange(t, udp, address, "big.sample.svc.clusterset.local.", dns.TypeA, 1232)
	if !m.Truncated || m.IsEdns0() == nil || len(m.Answer) <= 28 {
		t.Errorf("%d of %d endpoints over UDP with EDNS, truncated %v", len(m.Answer), endpoints, m.Truncated)
	}
	m = exchange(t, tcp, address, "big.sample.svc.clusterset.local.", dns.TypeA, 0)
	if m.Truncated || len(m.Answer) != endpoints {
		t.Errorf("%d of %d endpoints over TCP, truncated %v", len(m.Answer), endpoints, m.Truncated)
	}
	for name, want := range map[string]int{
		"none.sample.svc.clusterset.local.": dns.RcodeNameError,
		"example.com.":                      dns.RcodeRefused,
	} {
		if m := exchange(t, udp, address, name, dns.TypeA, 0); m.Rcode != want {
			t.Errorf("%s: %s, want %s", name, dns.RcodeToString[m.Rcode], dns.RcodeToString[want])
		}
	}
	body := get(t, "http://127.0.0.1:"+metrics+"/metrics")
	for _, want := range []string{
		`sealane_dns_queries_total{result="success",type="A"} 4`,
		`sealane_dns_queries_total{result="nxdomain",type="A"} 1`,
		"sealane_dns_services 2",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
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

func startAPIServer(t *testing.T) *rest.Config {
	t.Helper()
	var paths []string
	for _, find := range []func() (string, error){apiserver.CRDs, apiserver.MCSCRDs} {
		path, err := find()
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return apiserver.Start(t, paths...)
}

// populate creates a ClusterSetIP service and a headless one.
func populate(t *testing.T, config *rest.Config) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme, mcsv1beta1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	backends := v1alpha1.Backends{Ports: []v1alpha1.BackendPort{}}
	for i := range endpoints {
		backends.Addresses = append(backends.Addresses, v1alpha1.Backend{
			IP: fmt.Sprintf("10.9.%d.%d", i/250, 1+i%250), Hostname: fmt.Sprintf("big-%d", i), Ready: true,
		})
	}
	for _, obj := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "sample"}},
		&mcsv1beta1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{Name: "cs", Namespace: "sample"},
			Spec: mcsv1beta1.ServiceImportSpec{
				Type: mcsv1beta1.ClusterSetIP, IPs: []string{"10.88.1.1"}, Ports: []mcsv1beta1.ServicePort{{Port: 80}},
			},
		},
		&v1alpha1.Bundle{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.BundleName(0)},
			Spec: v1alpha1.BundleSpec{
				Imports: []v1alpha1.Import{{
					Namespace: "sample", Name: "big",
					Settings: v1alpha1.ServiceSettings{
						Type: v1alpha1.Headless, Ports: []v1alpha1.ServicePort{},
						SessionAffinity: corev1.ServiceAffinityNone, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
					},
					Clusters: []v1alpha1.ImportCluster{{
						Cluster: "c2", CreatedAt: metav1.Now(), Ports: []string{}, ClusterIPs: []string{},
						Backends: []v1alpha1.Backends{backends},
					}},
				}},
				ExportConditions: []v1alpha1.ExportCondition{},
			},
		},
	} {
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
}

// serve runs the server until the test ends.
func serve(t *testing.T, corefile string) {
	t.Helper()
	dnsserver.Quiet = true
	instance, err := caddy.Start(caddy.CaddyfileInput{
		Contents: []byte(corefile), Filepath: "Corefile", ServerTypeName: "dns",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		instance.ShutdownCallbacks()
		if err := instance.Stop(); err != nil {
			t.Error(err)
		}
	})
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

func exchange(t *testing.T, c *dns.Client, address, name string, qtype, size uint16) *dns.Msg {
	t.Helper()
	query := new(dns.Msg).SetQuestion(name, qtype)
	if size > 0 {
		query.SetEdns0(size, false)
	}
	c.Timeout = 5 * time.Second
	m, _, err := c.ExchangeContext(t.Context(), query, address)
	if err != nil {
		t.Fatalf("%s over %s: %v", name, c.Net, err)
	}
	return m
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
