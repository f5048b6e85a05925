// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane/internal/clip"
)

// archiveLimits bound what is read of an archive that anybody may have made, in bytes once unpacked.
type archiveLimits struct {
	files                int
	total, objects, file int64
}

func defaultLimits() archiveLimits {
	return archiveLimits{files: 200_000, total: 4 << 30, objects: 256 << 20, file: 4 << 20}
}

// unpacking is an archive that is read.
type unpacking struct {
	archiveLimits
	decoder runtime.Decoder
	objects map[string][]client.Object
	seen    map[string]bool
	// manifest is nil until it was read.
	manifest *manifest
}

// readArchive reads the snapshot that gather wrote to a file. Nothing is unpacked to disk.
func (o *options) readArchive(file string, limits archiveLimits) (*snapshot, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, o.noArchive(file, err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	u := &unpacking{archiveLimits: limits, objects: map[string][]client.Object{}, seen: map[string]bool{},
		decoder: serializer.NewCodecFactory(scheme).UniversalDeserializer()}
	if err := u.read(f); err != nil {
		return nil, o.noArchive(file, err)
	}
	s, err := u.snapshot()
	if err != nil {
		return nil, o.noArchive(file, err)
	}
	s.invocation, s.scheme = o.invocation, scheme
	return s, nil
}

func (o *options) noArchive(file string, err error) error {
	return &finding{
		expected: file + " to be what " + o.invocation + " gather has written, whole and as it was",
		found:    clip.Line(err.Error()),
		remedy:   "copy it again, or have it gathered again; do not trust one whose sender you do not know",
	}
}

func (u *unpacking) read(in io.Reader) error {
	zipped, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("not compressed by gzip: %w", err)
	}
	whole := &io.LimitedReader{R: zipped, N: u.total}
	archived := tar.NewReader(whole)
	for files := 0; ; files++ {
		header, err := archived.Next()
		if errors.Is(err, io.EOF) && whole.N > 0 {
			return nil
		}
		if whole.N <= 0 {
			return fmt.Errorf("more than %d bytes", u.total)
		}
		if err != nil {
			return fmt.Errorf("no archive of tar: %w", err)
		}
		if files >= u.files {
			return fmt.Errorf("more than %d files", u.files)
		}
		if err := u.entry(header, archived); err != nil {
			return fmt.Errorf("%q: %w", clip.Text(header.Name, 200), err)
		}
	}
}

// entry takes what a snapshot is made of; what is for people stays where it is.
func (u *unpacking) entry(header *tar.Header, in io.Reader) error {
	switch {
	case header.Typeflag == tar.TypeDir:
		return nil
	case header.Typeflag != tar.TypeReg:
		return errors.New("neither a file nor a directory")
	case path.IsAbs(header.Name), strings.Contains("/"+header.Name+"/", "/../"), strings.Contains(header.Name, `\`):
		return errors.New("no path within the archive")
	}
	_, inside, found := strings.Cut(path.Clean(header.Name), "/")
	dir, isObject := placeOf(inside)
	if !found || inside != manifestFile && !isObject {
		return nil
	}
	if u.seen[inside] {
		return errors.New("is there twice")
	}
	u.seen[inside] = true
	if header.Size > u.file {
		return fmt.Errorf("%d bytes, of at most %d", header.Size, u.file)
	}
	if u.archiveLimits.objects -= header.Size; u.archiveLimits.objects < 0 {
		return errors.New("all objects together are too large")
	}
	text, err := io.ReadAll(io.LimitReader(in, u.file))
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if !isObject {
		u.manifest = &manifest{}
		return yaml.Unmarshal(text, u.manifest)
	}
	o, err := u.object(text)
	if err == nil {
		u.objects[dir] = append(u.objects[dir], o)
	}
	return err
}

// placeOf is the directory of the place whose object a file is.
func placeOf(file string) (dir string, isObject bool) {
	parts := strings.Split(file, "/")
	switch {
	case len(parts) == 4 && (parts[0] == karmadaDir || parts[0] == hostDir) && parts[1] == objectsDir:
		return parts[0], true
	case len(parts) == 5 && parts[0] == membersDir && parts[2] == objectsDir:
		return path.Join(parts[:2]...), true
	}
	return "", false
}

// object decodes one, of a kind that this command knows, and with a name that an API server would have let it have: it
// is put into command lines.
func (u *unpacking) object(text []byte) (client.Object, error) {
	decoded, _, err := u.decoder.Decode(text, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	o, is := decoded.(client.Object)
	if !is {
		return nil, fmt.Errorf("a %T, which is no object", decoded)
	}
	if problems := validation.IsDNS1123Subdomain(o.GetName()); len(problems) > 0 {
		return nil, fmt.Errorf("name %q: %s", clip.Text(o.GetName(), 100), problems[0])
	}
	if problems := validation.IsDNS1123Label(o.GetNamespace()); o.GetNamespace() != "" && len(problems) > 0 {
		return nil, fmt.Errorf("namespace %q: %s", clip.Text(o.GetNamespace(), 100), problems[0])
	}
	return o, nil
}

// contextName is what contexts of kubeconfigs are called, as far as a shell takes it for one word.
var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@:/+-]{0,252}$`)

func (u *unpacking) snapshot() (*snapshot, error) {
	m := u.manifest
	switch {
	case m == nil:
		return nil, fmt.Errorf("no %s", manifestFile)
	case m.Format != archiveFormat:
		return nil, fmt.Errorf("format %d: this command knows %d; use the one of the version that gathered", m.Format,
			archiveFormat)
	case m.Taken.IsZero():
		return nil, fmt.Errorf("%s does not say when it was taken", manifestFile)
	}
	s := &snapshot{taken: m.Taken, plugin: m.Plugin}
	var err error
	if s.karmada, err = u.place(karmadaDir, &m.Karmada); err != nil {
		return nil, err
	}
	if s.host, err = u.place(hostDir, &m.Host); err != nil {
		return nil, err
	}
	for i := range m.Members {
		name := m.Members[i].Name
		if len(validation.IsDNS1123Label(name)) > 0 || s.member(name) != nil {
			return nil, fmt.Errorf("member %q: a name of its own was expected", clip.Text(name, 100))
		}
		p, err := u.place(path.Join(membersDir, name), &m.Members[i])
		if err != nil {
			return nil, err
		}
		s.members = append(s.members, p)
	}
	for dir := range u.objects {
		return nil, fmt.Errorf("objects in %q, of which %s does not know", clip.Text(dir, 100), manifestFile)
	}
	return s, nil
}

func (u *unpacking) place(dir string, r *placeRecord) (place, error) {
	if r.Context != "" && !contextName.MatchString(r.Context) {
		return place{}, fmt.Errorf("context %q of %s: letters, digits and ._@:/+- were expected",
			clip.Text(r.Context, 100), dir)
	}
	p := r.place()
	p.objects = u.objects[dir]
	delete(u.objects, dir)
	return p, nil
}
