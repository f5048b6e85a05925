// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/cavaliergopher/cpio"

	"github.com/sealane-io/sealane/e2e/hostprogram"
)

// writeInitramfs writes the whole file system of a guest.
func writeInitramfs(file string, files hostprogram.Files) error {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}
	buffered := bufio.NewWriter(f)
	a := archive{w: cpio.NewWriter(buffered), made: map[string]bool{"/": true}}
	if err := errors.Join(a.add(files), a.w.Close(), buffered.Flush(), f.Close()); err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}
	return nil
}

// archive in the making.
type archive struct {
	w *cpio.Writer
	// made are the directories that are in it.
	made map[string]bool
}

func (a *archive) add(files hostprogram.Files) error {
	for _, dst := range slices.Sorted(maps.Keys(files.Links)) {
		if err := a.parents(dst); err != nil {
			return err
		}
		target := files.Links[dst]
		if err := a.w.WriteHeader(&cpio.Header{Name: dst[1:], Mode: cpio.TypeSymlink | 0o777,
			Size: int64(len(target))}); err != nil {
			return err
		}
		if _, err := io.WriteString(a.w, target); err != nil {
			return err
		}
	}
	for _, dst := range slices.Sorted(maps.Keys(files.Regular)) {
		if err := a.file(dst, files.Regular[dst]); err != nil {
			return fmt.Errorf("%s: %w", dst, err)
		}
	}
	return nil
}

func (a *archive) parents(dst string) error {
	dir := path.Dir(dst)
	if a.made[dir] {
		return nil
	}
	a.made[dir] = true
	if err := a.parents(dir); err != nil {
		return err
	}
	return a.w.WriteHeader(&cpio.Header{Name: dir[1:], Mode: cpio.TypeDir | 0o755})
}

func (a *archive) file(dst, src string) error {
	if err := a.parents(dst); err != nil {
		return err
	}
	f, err := os.Open(src)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := a.w.WriteHeader(&cpio.Header{Name: dst[1:], Mode: cpio.TypeReg | cpio.FileMode(info.Mode().Perm()),
		Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(a.w, f)
	return err
}

// addTree adds all files below a directory here at the same place below another there.
func addTree(files hostprogram.Files, src, dst string) error {
	return filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		relative, err := filepath.Rel(src, p)
		files.Regular[filepath.Join(dst, relative)] = p
		return err
	})
}
