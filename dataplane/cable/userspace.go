// SPDX-License-Identifier: Apache-2.0

package cable

import (
	"fmt"
	"net"
	"os"

	"github.com/go-logr/logr"
	"golang.zx2c4.com/wireguard/conn"
	wg "golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/ipc"
	"golang.zx2c4.com/wireguard/tun"
)

// device is a WireGuard device in this process: a tun link, which exists as long as the device, and a
// control socket that wgctrl finds.
type device struct {
	wg   *wg.Device
	uapi net.Listener
	// ended is closed when nothing of the device is left.
	ended chan struct{}
}

func newDevice(name string, mtu int, log logr.Logger) (*device, error) {
	link, err := tun.CreateTUN(name, mtu)
	if err != nil {
		return nil, fmt.Errorf("make tun link: %w", err)
	}
	file, err := ipc.UAPIOpen(name)
	if err != nil {
		return nil, closing(link, fmt.Errorf("open the control socket: %w", err))
	}
	defer func() { _ = file.Close() }()
	uapi, err := listen(file)
	if err != nil {
		return nil, closing(link, fmt.Errorf("listen on the control socket: %w", err))
	}
	d := &device{
		wg:   wg.NewDevice(checksummed{link}, conn.NewDefaultBind(), logger(log)),
		uapi: uapi, ended: make(chan struct{}),
	}
	go d.serve()
	go d.closeSocket()
	return d, nil
}

// listen on the control socket, and remove it at the end. It stands in for ipc.UAPIListen, which watches the
// socket by inotify: a host has 128 instances of that by default, and where kubelets and containers use them
// all, no tunnel would come up.
func listen(file *os.File) (net.Listener, error) {
	l, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	if socket, ok := l.(*net.UnixListener); ok {
		socket.SetUnlinkOnClose(true)
	}
	return l, nil
}

func closing(link tun.Device, err error) error {
	if closeErr := link.Close(); closeErr != nil {
		return fmt.Errorf("%w (and closing the link: %w)", err, closeErr)
	}
	return err
}

// serve answers wgctrl until the socket is closed.
func (d *device) serve() {
	for {
		c, err := d.uapi.Accept()
		if err != nil {
			return
		}
		go d.wg.IpcHandle(c)
	}
}

// closeSocket follows the end of the device, which may come from outside: somebody deletes the link.
func (d *device) closeSocket() {
	<-d.wg.Wait()
	_ = d.uapi.Close() // the listener's file may be gone already
	close(d.ended)
}

func (d *device) close() {
	d.wg.Close()
	<-d.ended
}

// running says whether the device works and can be configured, for which its control socket must exist.
func (d *device) running() bool {
	select {
	case <-d.wg.Wait():
		return false
	default:
		_, err := os.Lstat(d.uapi.Addr().String())
		return err == nil
	}
}

// logger passes on the device's messages. They name peers by the first and last characters of their
// public keys, and no private key.
func logger(log logr.Logger) *wg.Logger {
	return &wg.Logger{
		Verbosef: func(format string, args ...any) {
			if l := log.V(4); l.Enabled() {
				l.Info("wireguard", "message", fmt.Sprintf(format, args...))
			}
		},
		Errorf: func(format string, args ...any) {
			log.V(1).Info("wireguard", "error", fmt.Sprintf(format, args...))
		},
	}
}
