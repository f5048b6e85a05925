// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	certutil "k8s.io/client-go/util/cert"

	"github.com/sealane-io/sealane/e2e/suite"
)

// imageRegistry is an OCI registry on this machine, with a certificate of an authority of its own.
type imageRegistry struct {
	// address is HOST:PORT, authority the path of the authority's certificate.
	address, authority string

	mu sync.Mutex
	// asked are the hosts that asked for a path.
	asked map[string][]string
}

// newRegistry runs until the end of the test, where the lab's nodes reach and trust it.
func newRegistry(t *testing.T) *imageRegistry {
	t.Helper()
	host := suite.Lab().HostAddress()
	pem, key, err := certutil.GenerateSelfSignedCertKey(host, []net.IP{net.ParseIP(host)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pem, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	r := &imageRegistry{address: listener.Addr().String(), authority: filepath.Join(t.TempDir(), "ca.crt"),
		asked: map[string][]string{}}
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if from, _, err := net.SplitHostPort(request.RemoteAddr); err == nil {
			r.mu.Lock()
			r.asked[request.URL.Path] = append(r.asked[request.URL.Path], from)
			r.mu.Unlock()
		}
		images.ServeHTTP(w, request)
	}))
	_ = server.Listener.Close()
	server.Listener, server.TLS = listener, &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	t.Cleanup(func() { removeImages(t, r.address) })
	if err := os.WriteFile(r.authority, pem, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := suite.Lab().TrustRegistry(t.Context(), r.address, pem); err != nil {
		t.Fatal(err)
	}
	return r
}

// removeImages removes what nodes have pulled from a registry, under all of its names.
func removeImages(t *testing.T, registry string) {
	t.Helper()
	const remove = `ctr="ctr --address=/run/containerd/containerd.sock --namespace=k8s.io images"
		$ctr ls | awk -v from="$0/" 'index($1, from) == 1 { pulled[$3] } { digest[$1] = $3 }
			END { for (ref in digest) if (digest[ref] in pulled) print ref }' | xargs -r $ctr rm`
	for _, c := range suite.Lab().Topology.Clusters {
		for _, node := range c.Nodes {
			if out, err := suite.Lab().InNode(context.Background(), node.Name, "sh", "-ec", remove, registry); err != nil {
				t.Errorf("remove images of %s: %v: %s", node.Name, err, out)
			}
		}
	}
}

// path is what --registry gets.
func (r *imageRegistry) path() string { return r.address + "/sealane" }

// gave says whether a host has asked for an image, given by its digest.
func (r *imageRegistry) gave(host, ref string) bool {
	repository, digest, _ := strings.Cut(strings.TrimPrefix(ref, r.address+"/"), "@")
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.asked["/v2/"+repository+"/manifests/"+digest], host)
}

// push pushes the images of a version as the documents say, and notes what each is called by its digest.
func (r *imageRegistry) push(t *testing.T, v *build) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "run", "github.com/sealane-io/sealane/e2e/cmd/push",
		"--images="+v.images, r.path())
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "SSL_CERT_FILE="+r.authority)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("push %s: %v: %s", v.version, err, out)
	}
	v.refs = map[string]string{}
	for ref := range strings.FieldsSeq(string(out)) {
		repository, _, _ := strings.Cut(ref, "@sha256:")
		v.refs[strings.TrimPrefix(repository, r.path()+"/")] = ref
	}
	if len(v.refs) != 3 || v.refs["agent"] == "" {
		t.Fatalf("expected controller, agent and dns to be pushed, found %q", out)
	}
}
