// SPDX-License-Identifier: Apache-2.0

// Package apiserver runs a real etcd and a real kube-apiserver on free loopback ports for the tests of
// one package, with CRDs installed, and stops both by process ID however the tests end.
package apiserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// token authenticates the test as a cluster admin.
const token = "sealane-test-admin"

// Server is a running kube-apiserver with its etcd.
type Server struct {
	// Config reaches the server as a cluster admin.
	Config *rest.Config

	dir       string
	processes []*process
	// etcd is where that serves its API.
	etcd string
	nice int
}

// Options of a server.
type Options struct {
	// Services is the network of Services, 10.96.0.0/16 if it is empty.
	Services string
	// Quota is how many bytes etcd may store, its default if 0.
	Quota int64
	// Nice is by how much the processes let others go first, as nice(1) has it.
	Nice int
	// CRDs are YAML files, or directories of them that are searched to any depth.
	CRDs []string
}

// Start starts a server for one test and stops it when the test ends. Each path of crds is a YAML file
// or a directory of them, searched to any depth.
func Start(t testing.TB, crds ...string) *rest.Config {
	t.Helper()
	s, err := Launch(t.Context(), crds...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s.Config
}

// Main runs the tests of a package against one server, whose configuration it leaves in config. It is
// what a TestMain calls, and returns the exit code.
func Main(m *testing.M, config **rest.Config, crds ...string) int {
	s, err := Launch(context.Background(), crds...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the API server:", err)
		return 1
	}
	defer s.Stop()
	*config = s.Config
	return m.Run()
}

// Launch starts a server and installs CRDs in it.
func Launch(ctx context.Context, crds ...string) (*Server, error) {
	return LaunchWith(ctx, Options{CRDs: crds})
}

// LaunchWith does so with other options.
func LaunchWith(ctx context.Context, o Options) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sealane-apiserver-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	s := &Server{dir: dir, nice: o.Nice}
	if err := s.launch(ctx, bin, o); err != nil {
		err = fmt.Errorf("%w\n%s", err, s.logs())
		s.Stop()
		return nil, err
	}
	return s, nil
}

// Stop ends both processes and removes what they wrote.
func (s *Server) Stop() {
	for i := len(s.processes) - 1; i >= 0; i-- {
		s.processes[i].stop()
	}
	_ = os.RemoveAll(s.dir)
}

func (s *Server) launch(ctx context.Context, bin string, o Options) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	ports, err := freePorts(ctx, 3)
	if err != nil {
		return err
	}
	client, peer := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	s.etcd = client
	if err := s.start(ctx, filepath.Join(bin, "etcd"),
		"--name=test", "--data-dir="+filepath.Join(s.dir, "etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--quota-backend-bytes="+strconv.FormatInt(o.Quota, 10),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=test="+peer,
	); err != nil {
		return err
	}
	flags, err := s.apiServerFlags(client, ports[2], cmp.Or(o.Services, "10.96.0.0/16"))
	if err != nil {
		return err
	}
	if err := s.start(ctx, filepath.Join(bin, "kube-apiserver"), flags...); err != nil {
		return err
	}
	s.Config = &rest.Config{
		Host:            "https://127.0.0.1:" + ports[2],
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		QPS:             1000,
		Burst:           2000,
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	return installCRDs(ctx, s.Config, o.CRDs)
}

func (s *Server) apiServerFlags(etcd, port, services string) ([]string, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("make the service account key: %w", err)
	}
	keyFile, tokenFile := filepath.Join(s.dir, "sa.key"), filepath.Join(s.dir, "tokens.csv")
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := errors.Join(os.WriteFile(keyFile, keyPEM, 0o600),
		os.WriteFile(tokenFile, []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600)); err != nil {
		return nil, fmt.Errorf("write credentials: %w", err)
	}
	return []string{
		"--etcd-servers=" + etcd,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + port,
		"--cert-dir=" + filepath.Join(s.dir, "certs"),
		"--token-auth-file=" + tokenFile,
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + keyFile, "--service-account-signing-key-file=" + keyFile,
		"--service-cluster-ip-range=" + services,
		"--disable-admission-plugins=ServiceAccount",
		"--endpoint-reconciler-type=none",
	}, nil
}

// ready waits until the server says so or one of the processes has ended.
func (s *Server) ready(ctx context.Context) error {
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Config.Host+"/readyz", nil)
		if err != nil {
			return fmt.Errorf("ask for readiness: %w", err)
		}
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		for _, p := range s.processes {
			if err := p.ended(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the API server: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// freePorts returns n loopback ports that nobody listened on just now.
func freePorts(ctx context.Context, n int) ([]string, error) {
	var config net.ListenConfig
	ports := make([]string, 0, n)
	for range n {
		l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}

// binaries finds the newest directory below the user's cache that holds both programs. The lab builds
// them.
func binaries() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory: %w", err)
	}
	root := filepath.Join(cache, "sealane", "bin")
	found, err := filepath.Glob(filepath.Join(root, "*", "kube-apiserver"))
	if err != nil {
		return "", fmt.Errorf("look for kube-apiserver: %w", err)
	}
	var newest string
	var at time.Time
	for _, path := range append(found, filepath.Join(root, "kube-apiserver")) {
		dir := filepath.Dir(path)
		info, err := os.Stat(path)
		if err != nil || filepath.Ext(dir) == ".tmp" || info.ModTime().Before(at) {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "etcd")); err == nil {
			newest, at = dir, info.ModTime()
		}
	}
	if newest == "" {
		return "", fmt.Errorf("no etcd and kube-apiserver below %s: build them with `make lab-deps`", root)
	}
	return newest, nil
}
