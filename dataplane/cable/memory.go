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
	// memoryBase and memoryPerProcessor make up the limit of the process's memory, which costs throughput
	// when it is reached. With two processors, four flows between gateways carried 0.91 of what plain
	// wireguard-go does with this limit, 512 MiB, 0.87 with 320 and 0.68 with 192.
	memoryBase         = 128 << 20
	memoryPerProcessor = 192 << 20
	// idleGCPercent keeps an idle agent small; busyGCPercent keeps the pools full while they are needed.
	idleGCPercent = 25
	busyGCPercent = 100
	// lookEvery is how often the traffic is looked at.
	lookEvery = time.Second
	// busyBytes between two looks are traffic that needs memory.
	busyBytes = 4 << 20
	// lullLooks with less than one lullShare of the most there was are a lull.
	lullLooks = 5
	lullShare = 4
)

// BoundMemory keeps the memory of the devices within bounds until the context ends: a limit for the
// whole process, and a return to what it was when the traffic falls.
func (h *Holder) BoundMemory(ctx context.Context) {
	debug.SetMemoryLimit(memoryLimit(runtime.GOMAXPROCS(0)))
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	t := traffic{}
	percent := 0
	for {
		busy, fell := t.look(h.carried())
		if want := gcPercent(busy); want != percent {
			debug.SetGCPercent(want)
			percent = want
		}
		if fell {
			debug.FreeOSMemory() // moves what the pools hold to where the next one
			debug.FreeOSMemory() // finds it
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func memoryLimit(processors int) int64 { return memoryBase + int64(processors)*memoryPerProcessor }

func gcPercent(busy bool) int {
	if busy {
		return busyGCPercent
	}
	return idleGCPercent
}

// carried is how many bytes the devices that are there have received and sent.
func (h *Holder) carried() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var bytes uint64
	for name := range h.devices {
		link, err := netlink.LinkByName(name)
		if err != nil || link.Attrs().Statistics == nil {
			continue // a device that ends
		}
		bytes += link.Attrs().Statistics.RxBytes + link.Attrs().Statistics.TxBytes
	}
	return bytes
}

// traffic notices when there is much, and when it has fallen.
type traffic struct {
	// carried is the last count, peak the most between two looks since traffic last fell.
	carried, peak uint64
	// quiet is the number of looks since there was more than a share of the peak.
	quiet int
}

// look takes the count of all bytes so far, which begins anew with a new device.
func (t *traffic) look(carried uint64) (busy, fell bool) {
	before := t.carried
	t.carried = carried
	if carried < before {
		return t.peak >= busyBytes, false
	}
	now := carried - before
	if now >= t.peak/lullShare || t.peak < busyBytes {
		t.peak, t.quiet = max(now, t.peak), 0
		return now >= busyBytes, false
	}
	t.quiet++
	if t.quiet < lullLooks {
		return true, false
	}
	t.peak, t.quiet = now, 0
	return now >= busyBytes, true
}
