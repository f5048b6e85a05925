// SPDX-License-Identifier: Apache-2.0

package kernel

import "fmt"

// Counters are what a link has carried.
type Counters struct{ ReceivedPackets, ReceivedBytes, SentPackets, SentBytes int64 }

// Counters of a link by name.
func (k *Kernel) Counters(link string) (Counters, error) {
	l, err := k.netlink.LinkByName(link)
	if err != nil {
		return Counters{}, fmt.Errorf("read the counters of %s: %w", link, err)
	}
	s := l.Attrs().Statistics
	if s == nil {
		return Counters{}, fmt.Errorf("read the counters of %s: the kernel gives none", link)
	}
	return Counters{int64(s.RxPackets), int64(s.RxBytes), int64(s.TxPackets), int64(s.TxBytes)}, nil
}
