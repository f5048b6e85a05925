// SPDX-License-Identifier: Apache-2.0

package netfacts_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/internal/netfacts"
)

func TestParsePrefix(t *testing.T) {
	for text, reason := range map[string]string{
		"10.8.0.0/16":            "",
		"100.64.0.0/11":          "",
		"100.100.100.200/32":     netfacts.ReasonReserved,
		"100.64.0.0/10":          netfacts.ReasonReserved,
		"fd00:42::42/128":        netfacts.ReasonReserved,
		"fd00:8::/48":            "",
		"2001:db8::/32":          "",
		"10.8.0.1/16":            netfacts.ReasonNotMasked,
		"0.0.0.0/0":              netfacts.ReasonDefaultRoute,
		"::/0":                   netfacts.ReasonDefaultRoute,
		"10.0.0.0/7":             netfacts.ReasonTooWide,
		"2000::/31":              netfacts.ReasonTooWide,
		"0.0.0.0/1":              netfacts.ReasonReserved,
		"127.0.0.0/8":            netfacts.ReasonReserved,
		"169.254.169.254/32":     netfacts.ReasonReserved,
		"168.63.129.0/24":        netfacts.ReasonReserved,
		"224.0.0.0/24":           netfacts.ReasonReserved,
		"240.0.0.0/4":            netfacts.ReasonReserved,
		"242.0.0.0/16":           netfacts.ReasonReserved,
		"255.255.255.255/32":     netfacts.ReasonReserved,
		"fd00:ec2::254/128":      netfacts.ReasonReserved,
		"fd20:ce::/32":           netfacts.ReasonReserved,
		"fd00:c1::a9fe:a9fe/128": netfacts.ReasonReserved,
		"fd51::/16":              netfacts.ReasonReserved,
		"fd51:1::/64":            netfacts.ReasonReserved,
		"fe80::/64":              netfacts.ReasonReserved,
		"ff02::/16":              netfacts.ReasonReserved,
		"::1/128":                netfacts.ReasonReserved,
		"::ffff:1.2.3.0/120":     netfacts.ReasonReserved,
		"10.8.0.0":               netfacts.ReasonInvalidCIDR,
		"10.8.0.0/33":            netfacts.ReasonInvalidCIDR,
		"fd00::%eth0/64":         netfacts.ReasonInvalidCIDR,
		"":                       netfacts.ReasonInvalidCIDR,
		strings.Repeat("9", 1e5): netfacts.ReasonInvalidCIDR,
	} {
		p, err := netfacts.ParsePrefix(text)
		if netfacts.Reason(err) != reason || (err == nil) != p.IsValid() {
			t.Errorf("%.40q: %v, %v, want %q", text, p, err, reason)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("%.40q: a message of %d bytes", text, len(err.Error()))
		}
	}
}

func TestParseAddr(t *testing.T) {
	for text, ok := range map[string]bool{
		"192.0.2.1": true, "10.0.0.1": true, "2001:db8::1": true, "fd00::1": true,
		"": false, "gateway": false, "127.0.0.1": false, "0.0.0.0": false, "224.0.0.1": false, "240.0.0.1": false,
		"169.254.169.254": false, "255.255.255.255": false, "fe80::1": false, "::1": false, "fd51::1": false,
		"::ffff:192.0.2.1": false, "2001:db8::1%eth0": false,
	} {
		if a, err := netfacts.ParseAddr(text); (err == nil) != ok || a.IsValid() != ok {
			t.Errorf("%q: %v, %v", text, a, err)
		}
	}
}

func TestParseHost(t *testing.T) {
	for text, reason := range map[string]string{
		"192.0.2.1/32":    "",
		"2001:db8::1/128": "",
		"10.128.0.0/9":    netfacts.ReasonTooWide,
		"192.0.2.0/31":    netfacts.ReasonTooWide,
		"2001:db8::/64":   netfacts.ReasonTooWide,
		"192.0.2.1":       netfacts.ReasonInvalidAddress,
		"127.0.0.1/32":    netfacts.ReasonInvalidAddress,
		"":                netfacts.ReasonInvalidAddress,
	} {
		if _, err := netfacts.ParseHost(text); netfacts.Reason(err) != reason {
			t.Errorf("%q: %v, want %q", text, err, reason)
		}
	}
}

func TestChecks(t *testing.T) {
	key := func(n byte, size int) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, size)) }
	parse := func(text string) error { _, err := netfacts.ParsePublicKey(text); return err }
	point := func(text string) error { _, err := netfacts.ParseIPsecKey(text); return err }
	const base = "BGsX0fLhLEJH+Lzm5WOkQPJ3A32BLeszoPShOUXYmMKWT+NC4v4af5uO5+tKfA+eFivOM1drMV7Oy7ZAaDe/UfU="
	mesh := func(cable, vxlan int32) error { _, err := netfacts.MeshPort(cable, vxlan); return err }
	for _, c := range []struct {
		what string
		err  error
		ok   bool
	}{
		{"MTU unknown", netfacts.CheckMTU(0), true},
		{"MTU smallest", netfacts.CheckMTU(1280), true},
		{"MTU largest", netfacts.CheckMTU(65535), true},
		{"MTU without IPv6", netfacts.CheckMTU(1279), false},
		{"MTU too large", netfacts.CheckMTU(65536), false},
		{"MTU negative", netfacts.CheckMTU(-1), false},
		{"slot 0", netfacts.CheckSlot(0), true},
		{"slot 15", netfacts.CheckSlot(15), true},
		{"slot 16", netfacts.CheckSlot(16), false},
		{"slot -1", netfacts.CheckSlot(-1), false},
		{"ports", netfacts.CheckPorts(4500, 4800), true},
		{"ports at the end", netfacts.CheckPorts(65520, 65519), true},
		{"overlay port at the end", netfacts.CheckPorts(4500, 65535), true},
		{"cable port too high", netfacts.CheckPorts(65521, 4800), false},
		{"cable port huge", netfacts.CheckPorts(1<<31-1, 4800), false},
		{"cable port 0", netfacts.CheckPorts(0, 4800), false},
		{"overlay port 0", netfacts.CheckPorts(4500, 0), false},
		{"overlay port among the cables'", netfacts.CheckPorts(4500, 4515), false},
		{"overlay port after the cables'", netfacts.CheckPorts(4500, 4516), true},
		{"point of P-256", point(base), true},
		{"another encoding of it", point(base[:40] + "\n" + base[40:]), false},
		{"with bits that count for nothing", point(base[:87] + "V="), false},
		{"compressed", point(base[:44]), false},
		{"off the curve", point(base[:40] + base[44:48] + base[44:]), false},
		{"at infinity", point(key(0, 65)), false},
		{"no point", point(key(4, 65)), false},
		{"none", point(""), false},
		{"mesh port", mesh(4500, 4800), true},
		{"mesh port at the end", mesh(65503, 4800), true},
		{"mesh port too high", mesh(65504, 4800), false},
		{"mesh port is the overlay's", mesh(4500, 4532), false},
		{"key", parse(key(1, 32)), true},
		{"key zero", parse(key(0, 32)), false},
		{"key short", parse(key(1, 31)), false},
		{"key with a newline", parse(key(1, 32)[:20] + "\n" + key(1, 32)[20:]), false},
		{"key empty", parse(""), false},
		{"address type", netfacts.CheckAddressType("LoadBalancer"), true},
		{"address type unknown", netfacts.CheckAddressType("Secret"), false},
	} {
		if (c.err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, c.err)
		}
	}
}

// TestOwners compares the table with a search through a list, on random prefixes of a small space.
func TestOwners(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func() netfacts.Owned {
		bits := 8 + r.IntN(9)
		a := netip.AddrFrom4([4]byte{10, byte(r.IntN(8)), 0, 0})
		return netfacts.Owned{Prefix: netip.PrefixFrom(a, bits).Masked(), Owner: string(rune('a' + r.IntN(4)))}
	}
	var table netfacts.Owners
	list := map[netfacts.Owned]bool{}
	for range 2000 {
		x, q := random(), random()
		if r.IntN(3) > 0 {
			table.Add(x.Prefix, x.Owner)
			list[x] = true
		} else {
			table.Remove(x.Prefix, x.Owner)
			delete(list, x)
		}
		want := map[netfacts.Owned]bool{}
		for o := range list {
			if o.Owner != q.Owner && o.Prefix.Overlaps(q.Prefix) {
				want[o] = true
			}
		}
		for o := range table.Overlapping(q.Prefix, q.Owner) {
			if !want[o] {
				t.Fatalf("%v is said to overlap %v", o, q)
			}
			delete(want, o)
		}
		if len(want) > 0 {
			t.Fatalf("%v overlaps %v unnoticed", want, q)
		}
	}
}

// BenchmarkOwners asks about prefixes of a hostile list that nobody else has.
func BenchmarkOwners(b *testing.B) {
	for _, size := range []int{1, 1000, 100000} {
		b.Run(fmt.Sprintf("prefixes=%d", size), func(b *testing.B) {
			var table netfacts.Owners
			for i := range size {
				table.Add(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32), "a")
			}
			p := netip.MustParsePrefix("172.16.0.0/24")
			b.ReportAllocs()
			for b.Loop() {
				table.Overlap(p, "")
			}
		})
	}
}
