// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Debian downloads packages of Debian for a processor, with all that they depend on, by the sources that apt of this
// machine has, and leaves the machine's own packages alone.
type Debian struct {
	// Dir keeps what was downloaded from one run to the next.
	Dir string
	// Arch is the processor, as Go and Debian spell it: amd64, arm64.
	Arch string
	// Fresh asks for the packages of today. Without it what was downloaded before serves.
	Fresh bool
}

// DebianPackage is a package that an image has files of.
type DebianPackage struct{ Name, Version, Arch string }

// listing names, in Dir, the archives of packages that were wanted.
func listing(wanted string) string { return "archives-" + strings.ReplaceAll(wanted, " ", "-") }

// Fetch downloads packages and what they depend on, and returns the paths of their archives, sorted.
func (d Debian) Fetch(ctx context.Context, packages ...string) ([]string, error) {
	dir, err := filepath.Abs(filepath.Join(d.Dir, d.Arch))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create the packages' directory: %w", err)
	}
	unlock, err := lock(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	wanted := strings.Join(packages, " ")
	if archives, ok := have(dir, wanted); ok && !d.Fresh {
		return archives, nil
	}
	config, err := d.configure(dir)
	if err != nil {
		return nil, err
	}
	if _, err := apt(ctx, config, "update"); err != nil {
		return nil, err
	}
	install := append([]string{"install", "--yes", "--download-only", "--reinstall"}, packages...)
	// Where an archive is already there it is not among those of --print-uris, so the plan is asked for.
	plan, err := apt(ctx, config, append([]string{"--simulate"}, install...)...)
	if err != nil {
		return nil, err
	}
	if _, err := apt(ctx, config, install...); err != nil {
		return nil, err
	}
	archives, err := planned(dir, d.Arch, plan)
	if err != nil {
		return nil, err
	}
	return archives, os.WriteFile(filepath.Join(dir, listing(wanted)),
		[]byte(wanted+"\n"+strings.Join(archives, "\n")+"\n"), 0o644)
}

// have returns the archives that were downloaded for the same packages before, if all are there.
func have(dir, wanted string) ([]string, bool) {
	text, err := os.ReadFile(filepath.Join(dir, listing(wanted)))
	if err != nil {
		return nil, false
	}
	of, list, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	archives := strings.Fields(list)
	missing := func(archive string) bool {
		_, err := os.Stat(archive)
		return err != nil
	}
	return archives, of == wanted && len(archives) > 0 && !slices.ContainsFunc(archives, missing)
}

// configure writes the configuration of an apt that knows of no installed package, and returns its path.
func (d Debian) configure(dir string) (string, error) {
	for _, p := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, p), 0o755); err != nil {
			return "", fmt.Errorf("create apt's directories: %w", err)
		}
	}
	status, config := filepath.Join(dir, "status"), filepath.Join(dir, "apt.conf")
	text := fmt.Sprintf(`Dir::State %q;
Dir::State::status %q;
Dir::Cache %q;
APT::Architecture %q;
#clear APT::Architectures;
APT::Architectures { %q; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
`, filepath.Join(dir, "state"), status, filepath.Join(dir, "cache"), d.Arch, d.Arch)
	return config, errors.Join(os.WriteFile(status, nil, 0o644), os.WriteFile(config, []byte(text), 0o644))
}

func apt(ctx context.Context, config string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"--quiet"}, args...)...)
	cmd.Env = append(os.Environ(), "APT_CONFIG="+config, "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("apt-get %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}

// planned returns the archives of the packages that a simulation would install: "Inst name (version suite [arch])".
func planned(dir, arch, plan string) ([]string, error) {
	var out []string
	for line := range strings.Lines(plan) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "Inst" {
			continue
		}
		version := strings.ReplaceAll(strings.TrimPrefix(fields[2], "("), ":", "%3a")
		pattern := filepath.Join(dir, "cache", "archives", fields[1]+"_"+version+"_*.deb")
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(found, func(p string) bool {
			return !strings.HasSuffix(p, "_"+arch+".deb") && !strings.HasSuffix(p, "_all.deb")
		})
		if len(found) != 1 {
			return nil, fmt.Errorf("expected one archive %s, found %q", pattern, found)
		}
		out = append(out, found[0])
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("expected apt-get to name packages, found:\n%s", plan)
	}
	slices.Sort(out)
	return out, nil
}

// describe returns the name and version of an archive's package.
func describe(ctx context.Context, archive string) (DebianPackage, error) {
	out, err := exec.CommandContext(ctx, "dpkg-deb", "--show", "--showformat=${Package}\n${Version}\n${Architecture}",
		archive).Output()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) != 3 {
		return DebianPackage{}, fmt.Errorf("describe %s: expected name, version and architecture, found %q: %w", archive,
			out, err)
	}
	return DebianPackage{Name: fields[0], Version: fields[1], Arch: fields[2]}, nil
}

// unneeded begins the paths of what no program in an image reads. Licences stay.
var unneeded = []string{"etc/init.d/", "etc/nftables.conf", "lib/systemd/", "usr/lib/systemd/", "usr/share/bug/",
	"usr/share/iptables/", "usr/share/lintian/", "usr/share/locale/", "usr/share/man/", "usr/share/nftables/",
	"usr/bin/", "etc/ld.so.conf.d/", "etc/rpc", "etc/ethertypes", "etc/networks"}

func needed(path string) bool {
	switch {
	case strings.HasPrefix(path, "usr/share/doc/"):
		return strings.HasSuffix(path, "/copyright")
	case strings.Contains(path, "/gconv/"), strings.Contains(path, "/audit/"):
		return false
	}
	return !slices.ContainsFunc(unneeded, func(p string) bool { return strings.HasPrefix(path, p) })
}

// unpack adds the files of a package's archive that an image needs.
func (f files) unpack(ctx context.Context, archive string) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", archive)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("unpack %s: %w", archive, err)
	}
	err = f.read(tar.NewReader(out))
	_, drained := io.Copy(io.Discard, out)
	if err := errors.Join(err, drained, cmd.Wait()); err != nil {
		return fmt.Errorf("unpack %s: %w", archive, err)
	}
	return nil
}

func (f files) read(r *tar.Reader) error {
	all := files{}
	if err := all.readAll(r); err != nil {
		return err
	}
	for path, x := range all {
		if needed(path) {
			f[path] = x
		}
	}
	return nil
}

// lock takes a file's lock until unlock is called.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
