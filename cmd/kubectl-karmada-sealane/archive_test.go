// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// archived writes a snapshot as gather does.
func archived(t *testing.T, s *snapshot) string {
	t.Helper()
	redactor, err := s.redactor()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := newArchive(&out, s.taken, redactor)
	for _, at := range s.places() {
		for _, o := range at.place.objects {
			gvk, err := s.reader(at.place).gvk(o)
			if err != nil {
				t.Fatal(err)
			}
			o.GetObjectKind().SetGroupVersionKind(gvk)
		}
		if err := a.objects(at.dir, at.place); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.close(s); err != nil {
		t.Fatal(err)
	}
	return written(t, out.Bytes())
}

func written(t *testing.T, data []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gather.tgz")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// offline are the options of a command that has no API server.
func offline() *options { return &options{invocation: "kubectl karmada sealane"} }

// TestAnArchiveIsJudgedAsWhatItWasMadeOf: each flaw that diagnose knows, and a snapshot without one.
func TestAnArchiveIsJudgedAsWhatItWasMadeOf(t *testing.T) {
	same := func(t *testing.T, s *snapshot) {
		t.Helper()
		want := s.check(diagnoseSubjects()...)
		back, err := offline().readArchive(archived(t, s), defaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if got := back.check(diagnoseSubjects()...); !reflect.DeepEqual(got, want) {
			t.Errorf("the archive is judged\n%+v\nwant\n%+v", got, want)
		}
	}
	same(t, well())
	for _, c := range flaws() {
		t.Run(c.subject+", "+c.name, func(t *testing.T) {
			s := well()
			c.change(t, s)
			same(t, s)
		})
	}
}

// packed is an archive with these entries.
func packed(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	w := tar.NewWriter(zipped)
	for i := range entries {
		// What a test puts into a file is in a field that tar knows as the owner.
		content := entries[i].Uname
		entries[i].Uname, entries[i].Size = "", int64(len(content))
		if err := w.WriteHeader(&entries[i]); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestHostileArchivesAreRefused, with what was expected and found, and what to do.
func TestHostileArchivesAreRefused(t *testing.T) {
	file := func(name, content string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Uname: content}
	}
	const good = "format: 1\ntaken: 2026-01-02T03:04:05Z\nmembers: [{name: c1, context: c1}]\n"
	const node = "apiVersion: v1\nkind: Node\nmetadata: {name: %s}\n"
	manifest := file("g/manifest.yaml", good)
	object := func(name string) tar.Header {
		return file("g/members/c1/objects/Node/x.yaml", fmt.Sprintf(node, name))
	}
	for _, c := range []struct {
		name, want string
		data       []byte
	}{
		{"nothing", "not compressed by gzip", nil},
		{"no archive", "no archive of tar", func() []byte {
			var out bytes.Buffer
			w := gzip.NewWriter(&out)
			_, _ = io.WriteString(w, strings.Repeat("x", 1024))
			_ = w.Close()
			return out.Bytes()
		}()},
		{"cut short", "unexpected EOF", packed(t, manifest)[:60]},
		{"a link", "neither a file nor a directory", packed(t,
			tar.Header{Typeflag: tar.TypeSymlink, Name: "g/x", Linkname: "/"})},
		{"a hard link", "neither a file", packed(t, tar.Header{Typeflag: tar.TypeLink, Name: "g/x", Linkname: "g/y"})},
		{"a device", "neither a file", packed(t, tar.Header{Typeflag: tar.TypeChar, Name: "g/x"})},
		{"a path outside", "no path within", packed(t, file("g/../../etc/passwd", "x"))},
		{"an absolute path", "no path within", packed(t, file("/etc/passwd", "x"))},
		{"no manifest", "no manifest.yaml", packed(t, object("n1"))},
		{"two manifests", "is there twice", packed(t, manifest, manifest)},
		{"one object twice", "is there twice", packed(t, object("n1"), object("n2"), manifest)},
		{"another format", "format 2: this command knows 1", packed(t, file("g/manifest.yaml", "format: 2\n"))},
		{"no time", "when it was taken", packed(t, file("g/manifest.yaml", "format: 1\n"))},
		{"a member that is a command", "a name of its own", packed(t, file("g/manifest.yaml",
			strings.Replace(good, "name: c1", "name: $(id)", 1)))},
		{"a member twice", "a name of its own", packed(t, file("g/manifest.yaml",
			strings.Replace(good, "[", "[{name: c1},", 1)))},
		{"a context that is a command", "letters, digits", packed(t, file("g/manifest.yaml",
			strings.Replace(good, "context: c1", "context: c1;id", 1)))},
		{"a member that the manifest lacks", `objects in "members/c2"`, packed(t, manifest,
			file("g/members/c2/objects/Node/x.yaml", fmt.Sprintf(node, "n1")))},
		{"an object that is a command", `name "$(id)"`, packed(t, object("$(id)"), manifest)},
		{"no object", "decode", packed(t, file("g/host/objects/Node/x.yaml", "x"), manifest)},
		{"a kind that nobody knows", "decode", packed(t, file("g/host/objects/X/x.yaml", "apiVersion: x/v1\nkind: X\n"))},
		{"a large file", "of at most 1024", packed(t, file("g/karmada/objects/Node/x.yaml", strings.Repeat("#", 2000)))},
		{"many large files", "too large", packed(t, file("g/host/objects/Node/1.yaml", fmt.Sprintf(node, "n1")+
			strings.Repeat("#", 900)), file("g/host/objects/Node/2.yaml", strings.Repeat("#", 900)))},
		{"a bomb", "more than 8192 bytes", packed(t, file("g/host/logs/x.log", strings.Repeat("x", 20_000)))},
		{"many files", "more than 4 files", packed(t, file("g/1", ""), file("g/2", ""), file("g/3", ""), file("g/4", ""),
			file("g/5", ""))},
	} {
		_, err := offline().readArchive(written(t, c.data), archiveLimits{files: 4, total: 8192, objects: 1500, file: 1024})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "to do: ") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if s, err := offline().readArchive(written(t, packed(t, object("n1"), manifest)), defaultLimits()); err != nil ||
		len(s.members) != 1 || len(s.members[0].objects) != 1 {
		t.Errorf("one that is as it should be: %+v, %v", s, err)
	}
}

// TestHollowObjectsAreJudged: no API server has looked at what an archive holds.
func TestHollowObjectsAreJudged(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"c1", controllerName, nodeAgentName, clusterAgentName, dnsName, "coredns", "kube-proxy", "default"}
	for _, full := range []bool{false, true} {
		s := &snapshot{scheme: scheme, members: []place{{name: "c1"}}}
		if full {
			s = well()
		}
		for _, at := range s.places() {
			for gvk := range scheme.AllKnownTypes() {
				for _, name := range names {
					for _, namespace := range []string{"", "kube-system", "sealane-system", "karmada-es-c1", controllerName} {
						if o, is := hollow(scheme, gvk); is {
							o.SetName(name)
							o.SetNamespace(namespace)
							at.place.objects = append(at.place.objects, o)
						}
					}
				}
			}
		}
		for _, subject := range diagnoseSubjects() {
			if all := s.check(subject); len(all) == 0 {
				t.Errorf("%s says nothing", subject.name)
			}
		}
	}
}

// hollow is an object of a kind with nothing in it.
func hollow(scheme *runtime.Scheme, gvk schema.GroupVersionKind) (client.Object, bool) {
	o, err := scheme.New(gvk)
	if err != nil {
		return nil, false
	}
	object, is := o.(client.Object)
	return object, is
}
