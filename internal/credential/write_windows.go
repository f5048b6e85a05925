// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// replace writes a file anew, by a temporary one beside it. Windows has no modes: who may read it is inherited from the
// directory. Windows promises no more of a rename than that it replaces the file, and it fails while somebody has
// that open without sharing it for deletion; the caller tries again.
func replace(path string, text []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", f.Name(), err)
	}
	return os.Rename(f.Name(), path)
}
