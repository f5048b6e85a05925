// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/suite"
)

// user and password that the registry asks for, and secretName what the Secret with them is called.
const (
	user       = "puller"
	password   = "letmein"
	secretName = "pull"
)

// imageRegistry is an OCI registry on this machine, with a certificate of an authority of its own, which gives nothing
// to strangers.
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
		if u, p, ok := request.BasicAuth(); !ok || u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
			http.Error(w, "who is it?", http.StatusUnauthorized)
			return
		}
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

// dockerConfig is what docker login writes, and a Secret for pulling has.
func (r *imageRegistry) dockerConfig(t *testing.T, password string) []byte {
	t.Helper()
	auth := map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(user + ":" + password))}
	out, err := json.Marshal(map[string]any{"auths": map[string]any{r.address: auth}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// letPull makes or changes the Secret by which a namespace of a cluster pulls, in a namespace that need not exist yet.
func (r *imageRegistry) letPull(t *testing.T, cluster, namespace, password string) {
	t.Helper()
	a, err := suite.API(cluster)
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := a.Create(t.Context(), ns); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secretName}}
	if _, err := controllerutil.CreateOrUpdate(t.Context(), a, secret, func() error {
		secret.Type = corev1.SecretTypeDockerConfigJson
		secret.Data = map[string][]byte{corev1.DockerConfigJsonKey: r.dockerConfig(t, password)}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// letMembersPull makes or changes the Secrets by which members pull.
func (r *imageRegistry) letMembersPull(t *testing.T, password string) {
	t.Helper()
	for _, c := range suite.Members() {
		r.letPull(t, c, v1alpha1.Namespace, password)
	}
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
	login := t.TempDir()
	if err := os.WriteFile(filepath.Join(login, "config.json"), r.dockerConfig(t, password), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "SSL_CERT_FILE="+r.authority, "DOCKER_CONFIG="+login)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("push %s: %v: %s", v.version, err, out)
	}
	v.refs = map[string]string{}
	for ref := range strings.FieldsSeq(string(out)) {
		repository, _, _ := strings.Cut(ref, "@sha256:")
		name := strings.TrimPrefix(repository, r.path()+"/")
		if slices.Contains([]string{"controller", "agent", "dns"}, name) { // those that are installed here
			v.refs[name] = ref
		}
	}
	if len(v.refs) != 3 {
		t.Fatalf("expected controller, agent and dns to be pushed, found %q", out)
	}
}
