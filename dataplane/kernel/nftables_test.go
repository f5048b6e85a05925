// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Bounds of ranges, as the kernel may list them, are prefixes. What is none is the zero prefix, which no plan has.
func TestPrefixesOf(t *testing.T) {
	from := func(s string) bound { return bound{at: netip.MustParseAddr(s)} }
	until := func(s string) bound { return bound{at: netip.MustParseAddr(s), end: true} }
	for _, c := range []struct {
		name   string
		bounds []bound
		want   string
	}{
		{"nothing", nil, "[]"},
		{"the zero that nft puts first", []bound{until("0.0.0.0"), from("10.0.0.0"), until("10.1.0.0")}, "[10.0.0.0/16]"},
		{"in any order", []bound{until("10.9.0.8"), from("10.9.0.7"), until("10.1.0.0"), from("10.0.0.0")},
			"[10.0.0.0/16 10.9.0.7/32]"},
		{"neighbours", []bound{from("10.0.0.0"), until("10.1.0.0"), from("10.1.0.0"), until("10.2.0.0")},
			"[10.0.0.0/16 10.1.0.0/16]"},
		{"neighbours without an end between them", []bound{from("10.0.0.0"), from("10.1.0.0"), until("10.2.0.0")},
			"[10.0.0.0/16 10.1.0.0/16]"},
		{"to the last address", []bound{from("fd00::"), until("fd00::1"), from("ff00::")}, "[fd00::/128 ff00::/8]"},
		{"everything", []bound{from("0.0.0.0")}, "[0.0.0.0/0]"},
		{"no prefix", []bound{from("10.0.0.0"), until("10.0.0.6")}, "[invalid Prefix]"},
		{"no address", []bound{from("10.0.0.0"), {}}, "[invalid Prefix]"},
	} {
		if got := fmt.Sprint(prefixesOf(c.bounds)); got != c.want {
			t.Errorf("%s: expected %s, found %s", c.name, c.want, got)
		}
	}
}

// Generations begin anew after the last, without a 0.
func TestGenerations(t *testing.T) {
	const last = ^uint32(0)
	if following(1) != 2 || following(last) != 1 {
		t.Errorf("after 1 and the last come %d and %d", following(1), following(last))
	}
	if !before(1, 2) || before(2, 1) || before(2, 2) || !before(last, 1) || before(1, last) {
		t.Error("the order is wrong")
	}
}

// nested is an attribute that holds others.
func nested(kind uint16, values ...[]byte) []byte {
	value := slices.Concat(values...)
	out := binary.NativeEndian.AppendUint16(nil, uint16(len(value)+unix.SizeofNlAttr))
	out = append(binary.NativeEndian.AppendUint16(out, kind), value...)
	return append(out, make([]byte, aligned(len(out))-len(out))...)
}

// FuzzNftables: whatever a message holds, it is read to its end.
func FuzzNftables(f *testing.F) {
	f.Add(nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, nested(unix.NFTA_LIST_ELEM,
		nested(unix.NFTA_SET_ELEM_KEY, nested(unix.NFTA_DATA_VALUE, []byte{10, 7, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0})),
		nested(unix.NFTA_SET_ELEM_DATA, nested(unix.NFTA_DATA_VERDICT,
			nested(unix.NFTA_VERDICT_CODE, []byte{0xff, 0xff, 0xff, 0xfc}),
			nested(unix.NFTA_VERDICT_CHAIN, []byte("web\x00")))))))
	f.Add(nested(unix.NFTA_RULE_USERDATA, []byte{0, 255, 'a'}))
	f.Add(nested(unix.NFTA_RULE_USERDATA, append([]byte{0, 255}, make([]byte, 255)...)))
	f.Add([]byte{3, 0, 1, 0})
	f.Fuzz(func(_ *testing.T, message []byte) {
		_, kind := parseSet(message)
		parseChain(message)
		parseRule(message)
		prefixesOf(bounds(message))
		for _, k := range []setKind{kind, {flags: unix.NFT_SET_MAP, key: []uint32{typeIPv4, typeProto, typeService},
			value: unix.NFT_DATA_VERDICT}, {flags: unix.NFT_SET_MAP, key: []uint32{typeIPv6}, value: typeMark}} {
			for e := range parseElements(message) {
				k.element(e)
			}
		}
	})
}
