// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// member of an archive.
type member struct {
	// name within the archive, with slashes.
	name string
	mode os.FileMode
	// path of the file, or its text where it is none of the disk.
	path string
	text []byte
}

// open returns the content of a member, and its size in bytes.
func (m member) open() (io.ReadCloser, int64, error) {
	if m.path == "" {
		return io.NopCloser(bytes.NewReader(m.text)), int64(len(m.text)), nil
	}
	f, err := os.Open(m.path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// copyTo writes the content of a member.
func (m member) copyTo(w io.Writer) error {
	r, _, err := m.open()
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, r.Close())
}

// sum is the SHA-256 of a member, in hexadecimal digits.
func (m member) sum() (string, error) {
	h := sha256.New()
	if err := m.copyTo(h); err != nil {
		return "", fmt.Errorf("sum of %s: %w", m.name, err)
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// sums lists members as sha256sum(1) does.
func sums(members []member) ([]byte, error) {
	var out bytes.Buffer
	for _, m := range members {
		sum, err := m.sum()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "%s  %s\n", sum, m.name)
	}
	return out.Bytes(), nil
}

// write an archive, in the format that its name ends with: .tar, .tar.gz or .zip. All members are of one time and of
// nobody, so that equal members make equal archives.
func write(path string, at time.Time, members []member) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if strings.HasSuffix(path, ".zip") {
		err = writeZip(f, at, members)
	} else if strings.HasSuffix(path, ".gz") {
		z := gzip.NewWriter(f)
		err = errors.Join(writeTar(z, at, members), z.Close())
	} else {
		err = writeTar(f, at, members)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func writeTar(w io.Writer, at time.Time, members []member) error {
	t := tar.NewWriter(w)
	for _, m := range members {
		r, size, err := m.open()
		if err != nil {
			return err
		}
		err = t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: m.name, Mode: int64(m.mode), Size: size,
			ModTime: at.UTC(), Format: tar.FormatUSTAR})
		if err == nil {
			_, err = io.Copy(t, r)
		}
		if err := errors.Join(err, r.Close()); err != nil {
			return fmt.Errorf("add %s: %w", m.name, err)
		}
	}
	return t.Close()
}

func writeZip(w io.Writer, at time.Time, members []member) error {
	z := zip.NewWriter(w)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: at.UTC()}
		h.SetMode(m.mode)
		to, err := z.CreateHeader(h)
		if err == nil {
			err = m.copyTo(to)
		}
		if err != nil {
			return fmt.Errorf("add %s: %w", m.name, err)
		}
	}
	return z.Close()
}
