// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// files of a layer, by path without a slash in front.
type files map[string]file

// file is a regular file, or a symbolic link.
type file struct {
	mode    int64
	content []byte
	link    string
}

// readAll adds the files of an archive.
func (f files) readAll(r *tar.Reader) error {
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Clean(h.Name)
		if !filepath.IsLocal(path) {
			return fmt.Errorf("expected paths within the archive, found %q", h.Name)
		}
		switch h.Typeflag {
		case tar.TypeReg:
			content, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			f[path] = file{mode: h.Mode & 0o755, content: content}
		case tar.TypeSymlink:
			f[path] = file{link: h.Linkname}
		case tar.TypeLink:
			f[path] = f[filepath.Clean(h.Linkname)]
		}
	}
}

// layer returns a layer with the files and, with tmp, a directory /tmp that everybody may write to. It says nothing of
// who made it or when, so that equal files make equal layers.
func (f files) layer(tmp bool) (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(h *tar.Header, content []byte) error {
		h.Format = tar.FormatPAX
		if err := w.WriteHeader(h); err != nil {
			return fmt.Errorf("add %s: %w", h.Name, err)
		}
		if _, err := w.Write(content); err != nil {
			return fmt.Errorf("add %s: %w", h.Name, err)
		}
		return nil
	}
	for _, path := range slices.Sorted(maps.Keys(f)) {
		x := f[path]
		h := &tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: x.mode, Size: int64(len(x.content))}
		if x.link != "" {
			h = &tar.Header{Typeflag: tar.TypeSymlink, Name: path, Linkname: x.link, Mode: 0o777}
		}
		if err := add(h, x.content); err != nil {
			return nil, err
		}
	}
	if tmp {
		if err := add(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, nil); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("finish layer: %w", err)
	}
	content := buf.Bytes()
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}
