// SPDX-License-Identifier: Apache-2.0

package cable

import (
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"sync"

	"github.com/go-logr/logr"
)

// Devices are userspace WireGuard devices, by the names of their links. They are configured by their control sockets.
// It is safe for concurrent use.
type Devices interface {
	// Create makes a device with an MTU in bytes. It replaces one of the same name.
	Create(name string, mtu int) error
	// Delete ends a device; one that does not exist is no error.
	Delete(name string) error
	// Running says whether a device exists, works and can be configured.
	Running(name string) bool
}

// Holder is the process in which devices are: they end with it.
type Holder struct {
	log logr.Logger

	mu      sync.Mutex
	devices map[string]*device
}

var _ Devices = (*Holder)(nil)

// NewHolder returns one without devices.
func NewHolder(log logr.Logger) *Holder { return &Holder{log: log, devices: map[string]*device{}} }

// Create implements Devices.
func (h *Holder) Create(name string, mtu int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if old, ok := h.devices[name]; ok {
		old.close()
		delete(h.devices, name)
	}
	d, err := newDevice(name, mtu, h.log.WithValues("link", name))
	if err != nil {
		return err
	}
	h.devices[name] = d
	return nil
}

// Delete implements Devices.
func (h *Holder) Delete(name string) error {
	h.mu.Lock()
	d, ok := h.devices[name]
	delete(h.devices, name)
	h.mu.Unlock()
	if ok {
		d.close()
	}
	return nil
}

// Running implements Devices.
func (h *Holder) Running(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, ok := h.devices[name]
	return ok && d.running()
}

// Holds is how many devices work.
func (h *Holder) Holds() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, d := range h.devices {
		if d.running() {
			n++
		}
	}
	return n
}

// Close ends all devices.
func (h *Holder) Close() {
	h.mu.Lock()
	devices := h.devices
	h.devices = map[string]*device{}
	h.mu.Unlock()
	for _, d := range devices {
		d.close()
	}
}

// Serve lets another process make, find and end devices of this one, until it closes its end of the connection. It
// may do so as root of the node may: the connection must be one that nobody else can reach, such as a socketpair.
func (h *Holder) Serve(c net.Conn) error {
	server := rpc.NewServer()
	if err := server.RegisterName(service, &served{h}); err != nil {
		return err
	}
	server.ServeConn(c)
	return nil
}

const service = "Devices"

// Wanted is a device that another process asks a Holder for.
type Wanted struct {
	Name string
	MTU  int
}

// served has methods of the shape that net/rpc asks for.
type served struct{ holder *Holder }

func (s *served) Create(w Wanted, _ *struct{}) error { return s.holder.Create(w.Name, w.MTU) }

func (s *served) Delete(w Wanted, _ *struct{}) error { return s.holder.Delete(w.Name) }

func (s *served) Running(w Wanted, running *bool) error {
	*running = s.holder.Running(w.Name)
	return nil
}

// remote are the devices of a Holder in another process.
type remote struct{ client *rpc.Client }

// Remote returns the devices of the Holder that serves the other end of a connection.
func Remote(c net.Conn) Devices { return remote{rpc.NewClient(c)} }

func (r remote) call(method string, w Wanted, reply any) error {
	err := r.client.Call(service+"."+method, w, reply)
	var theirs rpc.ServerError
	if err != nil && !errors.As(err, &theirs) {
		return fmt.Errorf("ask the process that holds the devices: %w", err)
	}
	return err
}

func (r remote) Create(name string, mtu int) error {
	return r.call("Create", Wanted{name, mtu}, new(struct{}))
}

func (r remote) Delete(name string) error { return r.call("Delete", Wanted{Name: name}, new(struct{})) }

func (r remote) Running(name string) bool {
	var running bool
	return r.call("Running", Wanted{Name: name}, &running) == nil && running
}
