// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
)

// registryDir holds one file per lab on this machine, named by its index.
const registryDir = "/run/sealane-lab"

// registry hands out indexes to labs. A lab is known by its directory, so two
// checkouts may both have a ".lab".
type registry struct {
	Dir string
	// Taken tells whether something outside the registry uses the addresses.
	Taken func(netip.Prefix) bool
}

type entry struct {
	Dir string `json:"dir"`
}

func hostRegistry() registry {
	return registry{Dir: registryDir, Taken: usedByHost}
}

// Acquire returns the index of the lab in dir. A new lab gets the first free
// one from the hash of its directory on.
func (r registry) Acquire(dir string) (int, error) {
	unlock, err := r.lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	entries, err := r.entries()
	if err != nil {
		return 0, err
	}
	for i, e := range entries {
		if e.Dir == dir {
			return i, nil
		}
	}
	h := fnv.New32a()
	h.Write([]byte(dir))
	start := int(h.Sum32() % maxLabs)
	for n := range maxLabs {
		i := (start + n) % maxLabs
		if _, used := entries[i]; used || r.Taken((layout{index: i}).prefix4()) {
			continue
		}
		return i, r.write(i, entry{Dir: dir})
	}
	return 0, fmt.Errorf("no room for another lab: %d of %d registered in %s, the rest overlap the machine's own networks",
		len(entries), maxLabs, r.Dir)
}

// Find returns the index of the lab in dir, if it has one.
func (r registry) Find(dir string) (int, bool, error) {
	entries, err := r.entries()
	if err != nil {
		return 0, false, err
	}
	for i, e := range entries {
		if e.Dir == dir {
			return i, true, nil
		}
	}
	return 0, false, nil
}

// Release gives an index back.
func (r registry) Release(index int) error {
	unlock, err := r.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.Remove(r.file(index)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("release lab index: %w", err)
	}
	return nil
}

func (r registry) file(index int) string {
	return filepath.Join(r.Dir, fmt.Sprintf("%d.json", index))
}

func (r registry) write(index int, e entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode registry entry: %w", err)
	}
	return writeFile(r.file(index), data, 0o644)
}

func (r registry) entries() (map[int]entry, error) {
	entries := map[int]entry{}
	for i := range maxLabs {
		data, err := os.ReadFile(r.file(i))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read lab registry: %w", err)
		}
		var e entry
		if err := json.Unmarshal(data, &e); err != nil {
			return nil, fmt.Errorf("read lab registry %s: %w", r.file(i), err)
		}
		entries[i] = e
	}
	return entries, nil
}

func (r registry) lock() (unlock func(), err error) {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("create lab registry: %w", err)
	}
	return lockFile(filepath.Join(r.Dir, "lock"))
}

// lockFile takes an exclusive lock that ends with the process at the latest. Its holder may remove the file:
// whoever waited for it meanwhile then takes the one that is at the path by now.
func lockFile(path string) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o644)
		if err != nil {
			return nil, fmt.Errorf("open lock: %w", err)
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		held, err := f.Stat()
		if err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if now, err := os.Stat(path); err == nil && os.SameFile(held, now) {
			return func() { _ = f.Close() }, nil
		}
		_ = f.Close()
	}
}

// usedByHost tells whether one of the host's addresses lies in p or has p in
// its network.
func usedByHost(p netip.Prefix) bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		if q, err := netip.ParsePrefix(a.String()); err == nil && q.Masked().Overlaps(p) {
			return true
		}
	}
	return false
}

// writeFile replaces a file in one step, so that a reader or a crash never
// sees half of it.
func writeFile(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
