// SPDX-License-Identifier: Apache-2.0

package cable

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/vishvananda/netlink"
)

// wireguard-go holds a buffer of 64 KiB for each packet under way, in pools that only the garbage collector
// empties. At full speed they would grow to half a gigabyte, and stay for minutes after the last packet.
const (
	// memoryBase and memoryPerProcessor make up the limit of the process's memory. With two processors at
	// full speed it costs no throughput; a third of it would cost half.
	memoryBase         = 128 << 20
	memoryPerProcessor = 32 << 20
	// lullEvery is how often the traffic is looked at.
	lullEvery = 10 * time.Second
	// lullBytes in this time are too few to hold much memory.
	lullBytes = 10 << 20
	// lullShare of the traffic is left when it has fallen: a quarter.
	lullShare = 4
)

// BoundMemory keeps the memory of userspace devices within bounds until the context ends: a limit for the
// whole process, and a return to what it was when the traffic falls. The kernel's devices need neither.
func (w *WireGuard) BoundMemory(ctx context.Context) {
	if w.kernel {
		return
	}
	debug.SetMemoryLimit(memoryLimit(runtime.GOMAXPROCS(0)))
	tick := time.NewTicker(lullEvery)
	defer tick.Stop()
	l := lull{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if l.fell(w.carried()) {
			debug.FreeOSMemory() // moves what the pools hold to where the next one
			debug.FreeOSMemory() // finds it
		}
	}
}

func memoryLimit(processors int) int64 { return memoryBase + int64(processors)*memoryPerProcessor }

// carried is how many bytes the userspace devices that are there have received and sent.
func (w *WireGuard) carried() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var bytes uint64
	for name := range w.userspace {
		link, err := netlink.LinkByName(name)
		if err != nil || link.Attrs().Statistics == nil {
			continue // a device that ends
		}
		bytes += link.Attrs().Statistics.RxBytes + link.Attrs().Statistics.TxBytes
	}
	return bytes
}

// lull notices that traffic has fallen.
type lull struct {
	// carried is the last count, peak the most between two counts since traffic last fell.
	carried, peak uint64
}

// fell takes the count of all bytes so far, which begins anew with a new device.
func (l *lull) fell(carried uint64) bool {
	before := l.carried
	l.carried = carried
	if carried < before {
		return false
	}
	now := carried - before
	if now >= l.peak || l.peak < lullBytes {
		l.peak = max(now, l.peak)
		return false
	}
	if now > l.peak/lullShare {
		return false
	}
	l.peak = now
	return true
}
