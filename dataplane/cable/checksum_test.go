// SPDX-License-Identifier: Apache-2.0

package cable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/tun"
)

// datagram6 is one of IPv6 whose checksum has not been computed.
func datagram6(payload []byte) []byte {
	p := make([]byte, ipv6.HeaderLen+udpHeader, ipv6.HeaderLen+udpHeader+len(payload))
	p[0], p[6], p[7] = ipv6.Version<<4, unix.IPPROTO_UDP, 64
	binary.BigEndian.PutUint16(p[4:], uint16(udpHeader+len(payload)))
	copy(p[8:], []byte{0xfd, 0x08, 15: 0x10})
	copy(p[24:], []byte{0xfd, 0x09, 15: 0x10})
	copy(p[ipv6.HeaderLen:], []byte{0x30, 0x39, 0x1b, 0x58, 0, byte(udpHeader + len(payload))})
	return append(p, payload...)
}

// TestAChecksumOfZero: of the datagrams that differ in two bytes the checksum of one is 0, which is to be told from
// none.
func TestAChecksumOfZero(t *testing.T) {
	for _, tail := range [][]byte{nil, {1}, {1, 2, 3}} {
		var changed []int
		for i := range 1 << 16 {
			before := datagram6(append(binary.BigEndian.AppendUint16(nil, uint16(i)), tail...))
			after := slices.Clone(before)
			sayZero(after)
			if bytes.Equal(before, after) {
				continue
			}
			changed = append(changed, i)
			// A receiver adds up all words, with those of the pseudo-header, and expects 0xffff.
			sum := words(after[8:]) + unix.IPPROTO_UDP + uint64(udpHeader+2+len(tail))
			for sum > 0xffff {
				sum = sum>>16 + sum&0xffff
			}
			if sum != 0xffff {
				t.Errorf("datagram %d: the sum is %#x", i, sum)
			}
			copy(after[ipv6.HeaderLen+udpChecksumAt:], []byte{0, 0})
			if !bytes.Equal(before, after) {
				t.Errorf("datagram %d: more than the checksum has changed", i)
			}
		}
		if len(changed) != 1 {
			t.Errorf("expected one of 65536 datagrams to change, found %v", changed)
		}
	}
}

// packets is a tun link that delivers them once.
type packets struct {
	tun.Device
	list [][]byte
}

func (p *packets) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	n := 0
	for ; n < len(p.list); n++ {
		sizes[n] = copy(bufs[n][offset:], p.list[n])
	}
	p.list = nil
	return n, errors.New("closed")
}

// TestOnlyDatagramsOfIPv6AreChecked: every packet of a batch is looked at, and others stay as they are, however short.
func TestOnlyDatagramsOfIPv6AreChecked(t *testing.T) {
	zero := datagram6([]byte{0, 0})
	sum := words(zero[8:]) + unix.IPPROTO_UDP + udpHeader + 2
	binary.BigEndian.PutUint16(zero[ipv6.HeaderLen+udpHeader:], ^uint16(sum>>16+sum&0xffff))
	edit := func(at int, to byte) []byte {
		p := slices.Clone(zero)
		p[at] = to
		return p
	}
	list := [][]byte{zero, edit(0, 0x45), edit(6, unix.IPPROTO_TCP), zero[:47], zero[:1], {}, edit(46, 1), zero}
	const offset = 16
	bufs, sizes := make([][]byte, len(list)), make([]int, len(list))
	for i := range bufs {
		bufs[i] = make([]byte, 128)
	}
	n, err := checksummed{&packets{list: slices.Clone(list)}}.Read(bufs, sizes, offset)
	if n != len(list) || err == nil {
		t.Fatalf("expected %d packets and the link's error, found %d, %v", len(list), n, err)
	}
	for i, before := range list {
		want := slices.Clone(before)
		if i == 0 || i == len(list)-1 {
			want[46], want[47] = 0xff, 0xff
		}
		if got := bufs[i][offset : offset+sizes[i]]; !bytes.Equal(got, want) {
			t.Errorf("packet %d: expected %x, found %x", i, want, got)
		}
	}
}
