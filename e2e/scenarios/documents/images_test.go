// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/e2e/suite"
)

// TestTheLabServesAnotherSuite: whoever brings images of their own loads them as archives, runs them in every
// member, reaches into them without delay, and reads ServiceImports.
func TestTheLabServesAnotherSuite(t *testing.T) {
	program := filepath.Join(t.TempDir(), "probe")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program,
		"github.com/sealane-io/sealane/e2e/images/client")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	image, loaded := imageOf(t, program), []string{}
	for ref, write := range map[string]func(*testing.T, string, string, v1.Image){
		"registry.example/suite/docker:v1": writeDocker,
		"registry.example/suite/oci:v2":    writeOCI,
		"suite:v3":                         writeDocker,
	} {
		archive := filepath.Join(t.TempDir(), "image.tar")
		write(t, archive, ref, image)
		if err := suite.Lab().LoadImages(t.Context(), archive); err != nil {
			t.Fatalf("%s: %v", ref, err)
		}
		loaded = append(loaded, ref)
	}
	for _, ref := range loaded {
		t.Run(ref, func(t *testing.T) {
			t.Parallel()
			runsEverywhere(t, ref)
		})
	}
}

func runsEverywhere(t *testing.T, image string) {
	s := suite.NewNamespace(t)
	for _, cluster := range suite.Members() {
		s.Create(cluster, &corev1.Pod{ObjectMeta: suite.Named("suite"), Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "suite", Image: image, Command: []string{"/probe", "sleep"}}},
		}})
	}
	for _, cluster := range suite.Members() {
		suite.WaitFor(s, cluster, &corev1.Pod{ObjectMeta: suite.Named("suite")}, func(p *corev1.Pod) error {
			if p.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("it is %s: %+v", p.Status.Phase, p.Status.ContainerStatuses)
			}
			return nil
		})
		lookUp := func(name, kind string) (string, time.Duration, error) {
			begin := time.Now()
			out, err := s.API(cluster).Exec(t.Context(), s.Name, "suite", "/probe", "dns", name, kind)
			return out, time.Since(begin), err
		}
		// How long exec and a look-up take at all on this machine now.
		_, local, _ := lookUp("kubernetes.default.svc.cluster.local", "A")
		out, took, err := lookUp("dns-version.clusterset.local", "TXT")
		t.Logf("%s: exec and a look-up in %s, of a name of the cluster's own in %s", cluster, took, local)
		if err != nil || !strings.Contains(out, "1.0.0") || took > 4*time.Second+local {
			t.Errorf("%s: expected the version within 4 s and %s, found %q after %s, %v", cluster, local, out, took, err)
		}
		if err := s.API(cluster).List(t.Context(), &mcs.ServiceImportList{}, client.InNamespace(s.Name)); err != nil {
			t.Errorf("%s: %v", cluster, err)
		}
	}
}

// imageOf is an image with one program in it.
func imageOf(t *testing.T, program string) v1.Image {
	t.Helper()
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(pack(w, map[string]string{"probe": program})) }()
		return r, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH})
	if err == nil {
		image, err = mutate.AppendLayers(image, layer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// pack writes files (name in the archive → path here) as a tar archive.
func pack(to io.Writer, files map[string]string) error {
	w := tar.NewWriter(to)
	for name, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755,
			Size: int64(len(data))}); err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return w.Close()
}

// writeDocker writes what docker save writes.
func writeDocker(t *testing.T, archive, ref string, image v1.Image) {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(archive, tag, image); err != nil {
		t.Fatal(err)
	}
}

// writeOCI writes what buildah and skopeo write: an image layout, whose index has the name.
func writeOCI(t *testing.T, archive, ref string, image v1.Image) {
	t.Helper()
	dir := t.TempDir()
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.AppendImage(image, layout.WithAnnotations(
		map[string]string{"org.opencontainers.image.ref.name": ref})); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		files[relative] = path
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := pack(f, files); err != nil {
		t.Fatal(err)
	}
}
