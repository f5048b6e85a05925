// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"bufio"
	"bytes"
	"cmp"
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

	"github.com/sealane-io/sealane/dataplane/plan"
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
	// podEnds is how long a pod of node agents has to end.
	podEnds = 45 * time.Second
)

// Charon keeps charon running in a directory, as long as an agent asks for it there.
type Charon struct {
	Dir string
	// Program is charon-systemd, which runs in the foreground and needs no systemd.
	Program string
	// Implementation of ESP; Auto if it is empty.
	Implementation Implementation
	// Patience is for how long charon may answer nothing until it is another one's turn; a minute if it is 0.
	Patience time.Duration
	Log      logr.Logger
}

// Run until the context ends.
func (c Charon) Run(ctx context.Context) error {
	// The child dies with the thread that started it.
	runtime.LockOSThread()
	var own turn
	defer own.release()
	wait, left := restartFirst, false
	var held decap
	defer func() { _ = held.hold(0) }()
	for ctx.Err() == nil {
		port, told := c.port()
		if port == 0 {
			switch {
			case told:
				own.release()
				own.foreign = false
				left = left || c.leave(&held)
			case own.idle(): // the agent may want what a former charon has left
				c.keep(&held, formerPort())
			default:
				_ = held.hold(0)
			}
			pause(ctx, lookEvery)
			continue
		}
		left = false
		if !own.bind() && !own.foreign {
			own.foreign = c.wait(ctx, &own, port)
			continue // it may be to end, or to have another port
		}
		started := time.Now()
		err := c.once(ctx, port, &held)
		if now, _ := c.port(); ctx.Err() != nil || now != port {
			continue // it was to end
		}
		c.keep(&held, formerPort())
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
	if port, told := c.port(); told && port == 0 && !left {
		c.leave(&held)
	}
	return nil // else the kernel's carrier stays, for the next one of these
}

// wait until the one before this has ended, as a pod's container may be there still when the next pod's agent has its
// turn: two charons would be in each other's way. It says whether that took longer than a pod may take to end, as
// anybody may have the name; then charon runs without.
func (c Charon) wait(ctx context.Context, own *turn, port uint16) (foreign bool) {
	for began := time.Now(); time.Since(began) < podEnds; pause(ctx, lookForLink) {
		if now, _ := c.port(); ctx.Err() != nil || now != port || own.bind() {
			return false
		}
		own.ask()
	}
	c.Log.Info("another process has had the name of what runs charon for long: going on without", "name", turnName,
		"after", podEnds.String())
	return true
}

// keep packets going by the kernel's security associations of a port, if there are such, while there is no charon.
func (c Charon) keep(held *decap, port uint16) {
	err := held.hold(port)
	if said := fmt.Sprint(err); err != nil && held.trouble != said {
		held.trouble = said
		c.Log.Info("nothing is received by the kernel's ESP until there is a charon", "why", said)
	}
}

// leave the kernel as it would be without charon, and say whether that is so now.
func (c Charon) leave(held *decap) bool {
	err := errors.Join(held.hold(0), leave())
	if said := fmt.Sprint(err); err != nil && held.trouble != said {
		held.trouble = said
		c.Log.Info("what the kernel has stays: trying again", "why", said)
	}
	return err == nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// port that an agent asks for, 0 for none. As long as no agent has told one, it may want what a former charon has left.
func (c Charon) port() (port uint16, told bool) {
	text, err := os.ReadFile(filepath.Join(c.Dir, portFile))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 16)
	return uint16(n), err == nil
}

// kernel says whether ESP is the kernel's, whose link is there then. That this is not possible is an error only where
// nothing else will do.
func (c Charon) kernel(port uint16) (bool, error) {
	if c.Implementation == Userspace {
		return false, errors.Join(leave(), tun())
	}
	err := overKernel(port)
	switch {
	case err == nil:
		return true, nil
	case c.Implementation == Kernel:
		return false, fmt.Errorf("the kernel's ESP: %w", err)
	}
	c.Log.Info("charon encrypts: the kernel does not", "why", err.Error())
	if without := errors.Join(leave(), tun()); without != nil {
		return false, errors.Join(without, fmt.Errorf("and the kernel's ESP: %w", err))
	}
	return false, nil
}

// tun says what is wrong with the device by which charon takes packets to encrypt, without which it dies of a fault.
func tun() error {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("the kernel is to have TUN devices (CONFIG_TUN, module tun): %w", err)
	}
	return f.Close()
}

// remove files of the directory, those that are there.
func (c Charon) remove(names ...string) error {
	for _, name := range names {
		if err := os.Remove(filepath.Join(c.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// once runs charon to its end: when the context ends, or another port is asked for, or none. Where the kernel encrypts,
// the carrier and its security associations outlive a charon that is killed, and packets pass on by them until the next
// one has made others.
func (c Charon) once(ctx context.Context, port uint16, held *decap) error {
	kernel, err := c.kernel(port)
	if err != nil {
		return errors.Join(err, c.remove(deviceFile, socketFile))
	}
	gone := []string{deviceFile} // which ends with charon
	if kernel {
		gone = nil
	}
	if err := c.remove(append(gone, socketFile)...); err != nil {
		return err
	}
	config := filepath.Join(c.Dir, configFile)
	if err := renameio.WriteFile(config, []byte(settings(c.Dir, port, kernel)), 0o600); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	child, said := c.command(ctx, config, port, kernel)
	if err := errors.Join(held.hold(0), child.Start()); err != nil {
		return err
	}
	hung := false
	var beside sync.WaitGroup
	beside.Go(func() { c.watch(ctx, stop, c.carrier(ctx, child, port, kernel), port) })
	beside.Go(func() {
		if hung = c.hangs(ctx); hung {
			_ = child.Process.Kill() // it may be stopped
		}
	})
	err = child.Wait()
	stop()
	beside.Wait()
	if hung {
		err = fmt.Errorf("it has answered nothing for %s", cmp.Or(c.Patience, hungAfter))
	}
	if err := c.remove(gone...); err != nil {
		return err
	}
	if last := said.trouble(); last != "" {
		return fmt.Errorf("%w: %s", cmpErr(err), last)
	}
	return cmpErr(err)
}

// command is charon with a configuration, and the last lines that it says. When the context ends it is asked to end, or
// killed where its container ends and its cables are to go on.
func (c Charon) command(ctx context.Context, config string, port uint16, kernel bool) (*exec.Cmd, *lastLines) {
	child := exec.CommandContext(ctx, c.Program)
	child.Env = []string{"STRONGSWAN_CONF=" + config}
	child.Cancel = func() error {
		if now, _ := c.port(); kernel && now == port {
			return child.Process.Kill() // this container ends, not the cables: asked to end, charon takes all away
		}
		return child.Process.Signal(syscall.SIGTERM)
	}
	child.WaitDelay = stopPatience
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said := &lastLines{log: c.Log}
	child.Stdout, child.Stderr = said, said
	return child, said
}

// carrier returns what finds the name of charon's link, "" while there is none: its own device or, where the kernel
// encrypts, the link that is made again when somebody has removed it.
func (c Charon) carrier(ctx context.Context, child *exec.Cmd, port uint16, kernel bool) func() string {
	if !kernel {
		return func() string { return deviceOf(child.Process.Pid) }
	}
	said, begun := "", false
	return func() string {
		if begun = begun || answers(ctx, filepath.Join(c.Dir, socketFile), answerWithin); !begun {
			return "" // it may be about to end, as it does where its port is taken
		}
		if err := carrierLink(port); err != nil {
			if said != err.Error() {
				said = err.Error()
				c.Log.Info("there is no carrier", "why", said)
			}
			return ""
		}
		return plan.KernelCarrier
	}
}

func cmpErr(err error) error {
	if err == nil {
		return errors.New("charon ended by itself")
	}
	return err
}

// watch tells the name of charon's link, and has charon end when another port is asked for.
func (c Charon) watch(ctx context.Context, stop func(), device func() string, port uint16) {
	told := false
	for ctx.Err() == nil {
		if now, _ := c.port(); now != port {
			stop()
			return
		}
		if name := device(); name != "" && !told {
			_ = os.Remove(filepath.Join(c.Dir, failedFile))
			told = renameio.WriteFile(filepath.Join(c.Dir, deviceFile), []byte(name), 0o600) == nil
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
// no packet matches, and which it does without where the kernel encrypts. The second socket, that it has besides, is at
// a port at which the guard takes nothing.
//
// What strangers begin is bounded by the thresholds. From 3 half open associations of one address on, or 30 of all, who
// begins has to show by a cookie that the address is its own: nothing is remembered of forged ones any more. An address
// may have 100 half open: the default is 5, which whoever is behind the same NAT as a peer soon has, and then that peer
// is not let in. All may have 4000, which took 46 MiB. They are kept for 5 s, not 30: who is well needs two exchanges,
// and tries anew after tryFor.
func settings(dir string, port uint16, kernel bool) string {
	table, esp := 5190, `
    kernel-libipsec {
      load = 10
    }
    kernel-netlink {
      load = yes
      fwmark = 0x51a0e51a
    }`
	if kernel {
		table, esp = 0, `
    kernel-netlink {
      load = yes
    }`
	}
	return fmt.Sprintf(`charon-systemd {
  port = %d
  port_nat_t = %d
  install_routes = no
  install_virtual_ip = no
  routing_table = %d
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
  plugins {%s
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
`, port+netfacts.IPsecUnusedOffset-netfacts.IPsecOffset, port, table, esp, filepath.Join(dir, socketFile))
}
