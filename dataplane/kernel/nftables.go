// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// What nf_tables says of chains, rules, sets and elements, in messages of netlink (linux/netfilter/nf_tables.h). They
// are read into the spelling of a plan. What no plan has is spelled so that the table is seen to differ.

// The types of keys and values, as the nft program numbers them (enum datatypes of its datatype.h). The kernel keeps
// them for it. Of a concatenation each has six bits, the first one the highest.
const (
	typeIPv4    = 7
	typeIPv6    = 8
	typeProto   = 12
	typeService = 13
	typeMark    = 19

	typeBits    = 6
	typesMost   = 5
	ruleComment = 0 // in a rule's user data: type, length, and text that ends with a zero
)

// attrs yields the attributes of a message with their types, without the flags of these.
func attrs(data []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(data) >= unix.SizeofNlAttr {
			size := int(nl.NativeEndian().Uint16(data))
			kind := nl.NativeEndian().Uint16(data[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if size < unix.SizeofNlAttr || size > len(data) || !yield(kind, data[unix.SizeofNlAttr:size]) {
				return
			}
			data = data[min(len(data), aligned(size)):]
		}
	}
}

// aligned is a size as netlink's attributes and the fields of a concatenation take it.
func aligned(size int) int { return (size + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1) }

// attr returns the first attribute of a type; nil if there is none.
func attr(data []byte, kind uint16) []byte {
	for k, value := range attrs(data) {
		if k == kind {
			return value
		}
	}
	return nil
}

func text(value []byte) string { return unix.ByteSliceToString(value) }

// number is big endian, as numbers of nf_tables are; 0 if there is none.
func number(value []byte) uint32 {
	if len(value) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(value)
}

// setKind is what a set or a map is, but for its elements.
type setKind struct {
	flags uint32
	key   []uint32 // types of the fields
	value uint32   // of a map
}

// parseSet reads a message about a set or a map.
func parseSet(message []byte) (name string, k setKind) {
	for kind, value := range attrs(message) {
		switch kind {
		case unix.NFTA_SET_NAME:
			name = text(value)
		case unix.NFTA_SET_FLAGS:
			k.flags = number(value)
		case unix.NFTA_SET_KEY_TYPE:
			k.key = keyTypes(number(value))
		case unix.NFTA_SET_DATA_TYPE:
			k.value = number(value)
		}
	}
	return name, k
}

func keyTypes(number uint32) []uint32 {
	var fields []uint32
	for ; number != 0 && len(fields) < typesMost; number >>= typeBits {
		fields = append(fields, number&(1<<typeBits-1))
	}
	slices.Reverse(fields)
	return fields
}

func (k setKind) is(flag uint32) bool { return k.flags&flag != 0 }

// plain says that a map is as plans have them: no ranges, nothing that goes by itself, or is added by packets.
func (k setKind) plain() bool {
	return k.is(unix.NFT_SET_MAP) &&
		!k.is(unix.NFT_SET_INTERVAL|unix.NFT_SET_TIMEOUT|unix.NFT_SET_EVAL|unix.NFT_SET_OBJECT)
}

// addresses says that a set is as plans have them: of ranges of addresses, of a family's length.
func (k setKind) addresses() bool {
	return k.is(unix.NFT_SET_INTERVAL) && !k.is(unix.NFT_SET_MAP|unix.NFT_SET_TIMEOUT|unix.NFT_SET_EVAL) &&
		len(k.key) == 1 && (k.key[0] == typeIPv4 || k.key[0] == typeIPv6)
}

// keyName and valueName spell the types of a map.
func (k setKind) keyName() string {
	names := make([]string, len(k.key))
	for i, t := range k.key {
		names[i] = typeName(t)
	}
	return strings.Join(names, " . ")
}

func (k setKind) valueName() string {
	if !k.plain() {
		return fmt.Sprintf("%s, flags %#x", typeName(k.value), k.flags)
	}
	return typeName(k.value)
}

func typeName(t uint32) string {
	switch t {
	case typeIPv4:
		return "ipv4_addr"
	case typeIPv6:
		return "ipv6_addr"
	case typeProto:
		return "inet_proto"
	case typeService:
		return "inet_service"
	case typeMark:
		return "mark"
	case unix.NFT_DATA_VERDICT:
		return "verdict"
	}
	return fmt.Sprintf("type %d", t)
}

// setElement is an element of a set or a map in binary.
type setElement struct {
	key, data []byte
	flags     uint32
}

// parseElements yields the elements of a message about those of one set.
func parseElements(message []byte) iter.Seq[setElement] {
	return func(yield func(setElement) bool) {
		for kind, one := range attrs(attr(message, unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
			if kind != unix.NFTA_LIST_ELEM {
				continue
			}
			var e setElement
			for kind, value := range attrs(one) {
				switch kind {
				case unix.NFTA_SET_ELEM_KEY:
					e.key = attr(value, unix.NFTA_DATA_VALUE)
				case unix.NFTA_SET_ELEM_DATA:
					e.data = value
				case unix.NFTA_SET_ELEM_FLAGS:
					e.flags = number(value)
				}
			}
			if !yield(e) {
				return
			}
		}
	}
}

// element spells an element of a map.
func (k setKind) element(e setElement) plan.MapElement {
	return plan.MapElement{Key: k.spellKey(e.key), Value: k.spellValue(e.data)}
}

// spellKey as nft lists it; "*" is the element for all other keys, which has none.
func (k setKind) spellKey(key []byte) string {
	if key == nil {
		return "*"
	}
	parts := make([]string, len(k.key))
	for i, t := range k.key {
		size := fieldSize(t)
		if len(k.key) == 1 {
			size = len(key)
		}
		if size == 0 || size > len(key) {
			return fmt.Sprintf("%#x", key)
		}
		parts[i] = spell(t, key[:size])
		key = key[min(len(key), aligned(size)):]
	}
	return strings.Join(parts, " . ")
}

// spellValue spells a value, or a verdict.
func (k setKind) spellValue(data []byte) string {
	for kind, value := range attrs(data) {
		switch kind {
		case unix.NFTA_DATA_VALUE:
			return spell(k.value, value)
		case unix.NFTA_DATA_VERDICT:
			return spellVerdict(value)
		}
	}
	return ""
}

func spellVerdict(data []byte) string {
	chain := text(attr(data, unix.NFTA_VERDICT_CHAIN))
	const drop, accept = 0, 1 // linux/netfilter.h
	switch code := int32(number(attr(data, unix.NFTA_VERDICT_CODE))); code {
	case drop:
		return "drop"
	case accept:
		return "accept"
	case unix.NFT_GOTO:
		return "goto " + chain
	case unix.NFT_JUMP:
		return "jump " + chain
	case unix.NFT_RETURN:
		return "return"
	case unix.NFT_CONTINUE:
		return "continue"
	default:
		return fmt.Sprintf("verdict %d", code)
	}
}

// fieldSize is how many bytes a value of a type has; 0 for those of no plan.
func fieldSize(t uint32) int {
	switch t {
	case typeIPv4, typeMark:
		return 4
	case typeIPv6:
		return 16
	case typeProto:
		return 1
	case typeService:
		return 2
	}
	return 0
}

// spell writes one value as nft lists it.
func spell(t uint32, value []byte) string {
	if len(value) != fieldSize(t) || len(value) == 0 {
		return fmt.Sprintf("%#x", value)
	}
	switch t {
	case typeIPv4, typeIPv6:
		a, _ := netip.AddrFromSlice(value)
		return a.String()
	case typeService:
		return fmt.Sprint(binary.BigEndian.Uint16(value))
	case typeMark:
		return fmt.Sprintf("0x%08x", nl.NativeEndian().Uint32(value))
	}
	switch value[0] {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	}
	return fmt.Sprint(value[0])
}

// bound is where a range of a set begins, or, with end, the first address behind it.
type bound struct {
	at  netip.Addr
	end bool
}

// compare has the end of one range before the beginning of the next.
func (b bound) compare(other bound) int {
	switch order := b.at.Compare(other.at); {
	case order != 0 || b.end == other.end:
		return order
	case b.end:
		return -1
	}
	return 1
}

// bounds are those of a message about the elements of a set of addresses. What is no address is the zero bound.
func bounds(message []byte) []bound {
	var out []bound
	for e := range parseElements(message) {
		a, _ := netip.AddrFromSlice(e.key)
		out = append(out, bound{a, e.flags&unix.NFT_SET_ELEM_INTERVAL_END != 0})
	}
	return out
}

// prefixesOf returns the ranges between bounds, sorted. One that is no prefix is the zero prefix: no plan has it.
func prefixesOf(bounds []bound) []netip.Prefix {
	slices.SortFunc(bounds, bound.compare)
	var out []netip.Prefix
	var from netip.Addr
	upTo := func(last netip.Addr) {
		if from.IsValid() {
			p, _ := netipx.IPRangeFrom(from, last).Prefix()
			out = append(out, p)
		}
	}
	for _, b := range bounds {
		if !b.at.IsValid() {
			return []netip.Prefix{{}}
		}
		upTo(b.at.Prev())
		from = netip.Addr{}
		if !b.end {
			from = b.at
		}
	}
	if from.IsValid() {
		upTo(netipx.PrefixLastIP(netip.PrefixFrom(from, 0)))
	}
	return out
}

// parseChain reads a message about a chain, which has no rules yet.
func parseChain(message []byte) (table string, handle uint64, c plan.Chain) {
	for kind, value := range attrs(message) {
		switch kind {
		case unix.NFTA_CHAIN_TABLE:
			table = text(value)
		case unix.NFTA_CHAIN_HANDLE:
			if len(value) == 8 {
				handle = binary.BigEndian.Uint64(value)
			}
		case unix.NFTA_CHAIN_NAME:
			c.Name = text(value)
		case unix.NFTA_CHAIN_TYPE:
			c.Type = text(value)
		case unix.NFTA_CHAIN_HOOK:
			c.Hook = hookName(number(attr(value, unix.NFTA_HOOK_HOOKNUM)))
			c.Priority = priorityName(int(int32(number(attr(value, unix.NFTA_HOOK_PRIORITY)))))
		}
	}
	return table, handle, c
}

func hookName(hook uint32) string {
	names := []string{"prerouting", "input", "forward", "output", "postrouting"}
	if int(hook) < len(names) {
		return names[hook]
	}
	return fmt.Sprintf("hook %d", hook)
}

// parseRule returns a rule's chain and its comment, which is the ID of one of ours.
func parseRule(message []byte) (chain, comment string) {
	for kind, value := range attrs(message) {
		switch kind {
		case unix.NFTA_RULE_CHAIN:
			chain = text(value)
		case unix.NFTA_RULE_USERDATA:
			for len(value) >= 2 && len(value) >= 2+int(value[1]) {
				end := 2 + int(value[1])
				if value[0] == ruleComment {
					comment = text(value[2:end])
				}
				value = value[end:]
			}
		}
	}
	return chain, comment
}
