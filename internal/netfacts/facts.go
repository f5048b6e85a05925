// SPDX-License-Identifier: Apache-2.0

package netfacts

import (
	"crypto/ecdh"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

// Reasons of errors.
const (
	ReasonInvalidCIDR      = "InvalidCIDR"
	ReasonNotMasked        = "NotMasked"
	ReasonDefaultRoute     = "DefaultRoute"
	ReasonTooWide          = "TooWide"
	ReasonReserved         = "Reserved"
	ReasonInvalidAddress   = "InvalidAddress"
	ReasonInvalidPublicKey = "InvalidPublicKey"
	ReasonInvalidSlot      = "InvalidSlot"
	ReasonInvalidPort      = "InvalidPort"
	ReasonInvalidMTU       = "InvalidMTU"
)

// Error says what is wrong with one fact.
type Error struct {
	// Reason in CamelCase, one of those above.
	Reason string
	// Message shows of a hostile text no more than 64 bytes.
	Message string
}

func (e *Error) Error() string { return e.Message }

func errorf(reason, format string, args ...any) error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Reason of an error of this package; "" of any other.
func Reason(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// The inner MTU of a gateway's cables, in bytes: IPv6 needs 1280 (RFC 8200 section 5), and a packet has no more
// than 65535.
const (
	MinMTU = 1280
	MaxMTU = 65535
)

// CheckMTU accepts 0, which is unknown, and what can carry IPv6. The error is an *Error.
func CheckMTU(mtu int32) error {
	if mtu != 0 && (mtu < MinMTU || mtu > MaxMTU) {
		return errorf(ReasonInvalidMTU, "MTU %d is not in %d to %d", mtu, MinMTU, MaxMTU)
	}
	return nil
}

// CheckSlot accepts the slots of gateways. The error is an *Error.
func CheckSlot(slot int32) error {
	if slot < 0 || slot > v1alpha1.MaxSlot {
		return errorf(ReasonInvalidSlot, "slot %d is not in 0 to %d", slot, v1alpha1.MaxSlot)
	}
	return nil
}

// CheckPorts accepts UDP ports of slot 0 of the cables and of the overlay: every slot's port exists, and the
// overlay's is none of them. The error is an *Error.
func CheckPorts(cable, vxlan int32) error {
	last := int64(cable) + v1alpha1.MaxSlot
	switch {
	case cable < 1 || last > 65535:
		return errorf(ReasonInvalidPort, "cable port %d is not a port with %d more above it", cable, v1alpha1.MaxSlot)
	case vxlan < 1 || vxlan > 65535:
		return errorf(ReasonInvalidPort, "vxlanPort %d is not a port", vxlan)
	case vxlan >= cable && int64(vxlan) <= last:
		return errorf(ReasonInvalidPort, "vxlanPort %d is among the cables' ports %d to %d", vxlan, cable, last)
	}
	return nil
}

// meshOffset of the mesh's UDP port leaves room for two for each slot: a gateway that replaces its key has two cables.
const meshOffset = 2 * (v1alpha1.MaxSlot + 1)

// MeshPort returns the UDP port between the nodes of meshed clusters. The error is an *Error: there is no such port, or
// the overlay has it.
func MeshPort(cable, vxlan int32) (uint16, error) {
	port := int64(cable) + meshOffset
	switch {
	case cable < 1 || port > 65535:
		return 0, errorf(ReasonInvalidPort, "cable port %d is not a port with %d more above it, as a mesh needs", cable,
			meshOffset)
	case port == int64(vxlan):
		return 0, errorf(ReasonInvalidPort, "vxlanPort %d is the port that a mesh needs, cable port %d and %d more", vxlan,
			cable, meshOffset)
	}
	return uint16(port), nil
}

// VXLANCableOffset is that of the UDP port of cables by VXLAN from the first of the cables', behind the mesh's.
const VXLANCableOffset = meshOffset + 1

// VXLANCablePort returns the UDP port of cables by VXLAN, one for all slots. The error is an *Error: there is no such
// port, or the overlay has it.
func VXLANCablePort(cable, vxlan int32) (uint16, error) {
	port := int64(cable) + VXLANCableOffset
	switch {
	case cable < 1 || port > 65535:
		return 0, errorf(ReasonInvalidPort, "cable port %d is not a port with %d more above it, as cables by vxlan need",
			cable, VXLANCableOffset)
	case port == int64(vxlan):
		return 0, errorf(ReasonInvalidPort, "vxlanPort %d is the port that cables by vxlan need, cable port %d and %d more",
			vxlan, cable, VXLANCableOffset)
	}
	return uint16(port), nil
}

// Offsets of the UDP ports of cables by IPsec from the first of the cables': of IKE and ESP, of the VXLAN in them,
// which is on no network, and of a socket that strongSwan has besides, at which nothing is taken.
const (
	IPsecOffset       = VXLANCableOffset + 1
	IPsecVXLANOffset  = IPsecOffset + 1
	IPsecUnusedOffset = IPsecVXLANOffset + 1
)

// IPsecPort returns the first of them. The error is an *Error: there are no such ports, or the overlay has one.
func IPsecPort(cable, vxlan int32) (uint16, error) {
	first, last := int64(cable)+IPsecOffset, int64(cable)+IPsecUnusedOffset
	switch {
	case cable < 1 || last > 65535:
		return 0, errorf(ReasonInvalidPort, "cable port %d is not a port with %d more above it, as cables by ipsec need",
			cable, IPsecUnusedOffset)
	case first <= int64(vxlan) && int64(vxlan) <= last:
		return 0, errorf(ReasonInvalidPort, "vxlanPort %d is among the ports that cables by ipsec need, cable port %d and "+
			"%d to %d more", vxlan, cable, IPsecOffset, IPsecUnusedOffset)
	}
	return uint16(first), nil
}

// ULA returns an address that follows from an ID: fd51 and 112 bits of the ID's SHA-256, more than anybody can make
// collide.
func ULA(id string) netip.Addr {
	sum := sha256.Sum256([]byte(id))
	a := [16]byte{0xfd, 0x51}
	copy(a[2:], sum[:])
	return netip.AddrFrom16(a)
}

// IPsecVTEP is a gateway's outer address of cables by IPsec, by its public key.
func IPsecVTEP(key [PublicKeySize]byte) netip.Addr { return ULA("ipsec " + string(key[:])) }

// VTEPMAC returns the hardware address of a VXLAN link at an outer address. It is locally administered: 02:51 and the
// IPv4 address, or 32 bits of the IPv6 address's SHA-256, which anybody can make collide.
func VTEPMAC(outer netip.Addr) [6]byte {
	m := [6]byte{0x02, 0x51}
	if outer.Is4() {
		a := outer.As4()
		copy(m[2:], a[:])
		return m
	}
	a := outer.As16()
	sum := sha256.Sum256(a[:])
	copy(m[2:], sum[:])
	return m
}

// VTEPHop is the next hop of IPv4 routes to a VXLAN link at an outer address: that address, or for IPv6 one of
// 240.0.0.0/5 that follows from the hardware address. Two with different ones have different hardware addresses.
func VTEPHop(outer netip.Addr) netip.Addr {
	if outer.Is4() {
		return outer
	}
	m := VTEPMAC(outer)
	return netip.AddrFrom4([4]byte{240 | m[2]&7, m[3], m[4], m[5]})
}

// IPsecMAC returns the hardware address of a cable by IPsec at an outer address. It is locally administered, with 46
// bits of that address's SHA-256: by it alone gateways are told apart on a cable, and to hit another's takes 2^46 keys.
func IPsecMAC(outer netip.Addr) [6]byte {
	a := outer.As16()
	sum := sha256.Sum256(a[:])
	m := [6]byte(sum[:])
	m[0] = m[0]&^3 | 2
	return m
}

// PublicKeySize of an X25519 public key, in bytes.
const PublicKeySize = 32

// ParsePublicKey parses an X25519 public key in padded base64. The error is an *Error.
func ParsePublicKey(text string) ([PublicKeySize]byte, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	// The decoder skips newlines, which make another text of the same key.
	if err != nil || len(raw) != PublicKeySize || len(text) != base64.StdEncoding.EncodedLen(PublicKeySize) {
		return [PublicKeySize]byte{}, errorf(ReasonInvalidPublicKey, "public key %s is not base64 of %d bytes",
			clip.Quote(text), PublicKeySize)
	}
	key := [PublicKeySize]byte(raw)
	if key == ([PublicKeySize]byte{}) {
		return key, errorf(ReasonInvalidPublicKey, "public key is all zero")
	}
	return key, nil
}

// IPsecKeySize of a public key of the curve P-256, as an uncompressed point, in bytes.
const IPsecKeySize = 65

// ParseIPsecKey parses such a key in padded base64, and checks that it is on the curve. The error is an *Error.
func ParseIPsecKey(text string) ([IPsecKeySize]byte, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != IPsecKeySize || len(text) != base64.StdEncoding.EncodedLen(IPsecKeySize) {
		return [IPsecKeySize]byte{}, errorf(ReasonInvalidPublicKey, "key for ipsec %s is not base64 of %d bytes",
			clip.Quote(text), IPsecKeySize)
	}
	if _, err := ecdh.P256().NewPublicKey(raw); err != nil {
		return [IPsecKeySize]byte{}, errorf(ReasonInvalidPublicKey, "key for ipsec %s is no uncompressed point of P-256",
			clip.Quote(text))
	}
	return [IPsecKeySize]byte(raw), nil
}

// CheckAddressType accepts the sources of candidate addresses. The error is an *Error.
func CheckAddressType(t v1alpha1.AddressType) error {
	switch t {
	case v1alpha1.AddressPrivate, v1alpha1.AddressPublic, v1alpha1.AddressLoadBalancer:
		return nil
	}
	return errorf(ReasonInvalidAddress, "address type %s is none of %s, %s, %s", clip.Quote(string(t)),
		v1alpha1.AddressPrivate, v1alpha1.AddressPublic, v1alpha1.AddressLoadBalancer)
}
