// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/renameio/v2"

	"github.com/sealane-io/sealane/internal/netfacts"
)

const (
	// lookEvery is how often the directory is looked at, and lookForLink how often charon's link is looked for.
	lookEvery, lookForLink = 200 * time.Millisecond, 20 * time.Millisecond
	// restartFirst and restartMost bound the wait before charon is started again; the wait doubles, and begins anew after
	// one that lived for calm.
	restartFirst, restartMost, calm = 50 * time.Millisecond, 10 * time.Second, time.Minute
	// stopPatience is what charon is given to end by itself.
	stopPatience = 2 * time.Second
)

// Charon keeps charon running in a directory, as long as an agent asks for it there.
type Charon struct {
	Dir string
	// Program is charon-systemd, which runs in the foreground and needs no systemd.
	Program string
	Log     logr.Logger
}

// Run until the context ends.
func (c Charon) Run(ctx context.Context) error {
	// The child dies with the thread that started it.
	runtime.LockOSThread()
	wait := restartFirst
	for ctx.Err() == nil {
		port, ok := c.port()
		if !ok {
			pause(ctx, lookEvery)
			continue
		}
		started := time.Now()
		err := c.once(ctx, port)
		if now, ok := c.port(); ctx.Err() != nil || !ok || now != port {
			continue // it was to end
		}
		c.Log.Info("charon ended: starting it again", "how", fmt.Sprint(err), "after", wait.String())
		if err := renameio.WriteFile(filepath.Join(c.Dir, failedFile), []byte(fmt.Sprint(err)), 0o600); err != nil {
			return err
		}
		if time.Since(started) > calm {
			wait = restartFirst
		}
		pause(ctx, wait)
		wait = min(2*wait, restartMost)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// port that an agent asks for.
func (c Charon) port() (uint16, bool) {
	text, err := os.ReadFile(filepath.Join(c.Dir, portFile))
	if err != nil {
		return 0, false
	}
	port, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 16)
	return uint16(port), err == nil && port > 0
}

// once runs charon to its end: when the context ends, or another port is asked for, or none.
func (c Charon) once(ctx context.Context, port uint16) error {
	for _, name := range []string{deviceFile, socketFile} {
		if err := os.Remove(filepath.Join(c.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	config := filepath.Join(c.Dir, configFile)
	if err := renameio.WriteFile(config, []byte(settings(c.Dir, port)), 0o600); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	child := exec.CommandContext(ctx, c.Program)
	child.Env = []string{"STRONGSWAN_CONF=" + config}
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	child.WaitDelay = stopPatience
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said := &lastLines{log: c.Log}
	child.Stdout, child.Stderr = said, said
	if err := child.Start(); err != nil {
		return err
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.watch(ctx, stop, child.Process.Pid, port)
	}()
	err := child.Wait()
	stop()
	<-watched
	_ = os.Remove(filepath.Join(c.Dir, deviceFile)) // the link is gone
	if last := said.trouble(); last != "" {
		return fmt.Errorf("%w: %s", cmpErr(err), last)
	}
	return cmpErr(err)
}

func cmpErr(err error) error {
	if err == nil {
		return errors.New("charon ended by itself")
	}
	return err
}

// watch tells the name of charon's link, and has charon end when another port is asked for.
func (c Charon) watch(ctx context.Context, stop func(), pid int, port uint16) {
	told := false
	for ctx.Err() == nil {
		if now, ok := c.port(); !ok || now != port {
			stop()
			return
		}
		if !told {
			if name := deviceOf(pid); name != "" {
				_ = os.Remove(filepath.Join(c.Dir, failedFile))
				told = renameio.WriteFile(filepath.Join(c.Dir, deviceFile), []byte(name), 0o600) == nil
			}
		}
		every := lookEvery
		if !told {
			every = lookForLink
		}
		pause(ctx, every)
	}
}

// deviceOf returns the name of the TUN device that a process has open; empty while it has none.
func deviceOf(pid int) string {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return ""
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if name, ok := strings.CutPrefix(line, "iff:"); ok {
				return strings.TrimSpace(name)
			}
		}
	}
	return ""
}

// lastLines passes on what charon says, and keeps the last of its troubles.
type lastLines struct {
	log  logr.Logger
	mu   sync.Mutex
	part []byte
	last string
}

func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 1 << 16
	l.part = append(l.part, p...)
	reader := bufio.NewReader(bytes.NewReader(l.part))
	for {
		line, err := reader.ReadString('\n')
		if errors.Is(err, io.EOF) && len(line) < most {
			l.part = []byte(line)
			return len(p), nil
		}
		line = strings.TrimSpace(line)
		l.log.V(1).Info("charon", "says", line)
		if strings.Contains(line, "unable to bind") || strings.Contains(line, "initialization failed") {
			l.last = line
		}
	}
}

func (l *lastLines) trouble() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// settings of charon. It takes IKE and ESP at one port, and keeps its hands off routes but those of its own rule, which
// no packet matches. The second socket, that it has besides, is at a port at which the guard takes nothing.
//
// What strangers begin is bounded by the thresholds. From 3 half open associations of one address on, or 30 of all, who
// begins has to show by a cookie that the address is its own: nothing is remembered of forged ones any more. An address
// may have 100 half open: the default is 5, which whoever is behind the same NAT as a peer soon has, and then that peer
// is not let in. All may have 4000, which took 46 MiB. They are kept for 5 s, not 30: who is well needs two exchanges,
// and tries anew after tryFor.
func settings(dir string, port uint16) string {
	return fmt.Sprintf(`charon-systemd {
  port = %d
  port_nat_t = %d
  install_routes = no
  install_virtual_ip = no
  routing_table = 5190
  routing_table_prio = 32760
  retransmit_tries = 3
  retransmit_timeout = 1.0
  retransmit_base = 1.4
  keep_alive = 15
  cookie_threshold = 30
  cookie_threshold_ip = 3
  block_threshold = 100
  init_limit_half_open = 4000
  half_open_timeout = 5
  make_before_break = yes
  delete_rekeyed_delay = 5
  retry_initiate_interval = 0
  load_modular = yes
  filelog {
    stderr {
      default = 1
    }
  }
  plugins {
    kernel-libipsec {
      load = 10
    }
    kernel-netlink {
      load = yes
      fwmark = 0x51a0e51a
    }
    socket-default {
      load = yes
    }
    openssl {
      load = yes
    }
    nonce {
      load = yes
    }
    random {
      load = yes
    }
    kdf {
      load = yes
    }
    aesni {
      load = yes
    }
    vici {
      load = yes
      socket = unix://%s
    }
  }
}
`, port+netfacts.IPsecUnusedOffset-netfacts.IPsecOffset, port, filepath.Join(dir, socketFile))
}
