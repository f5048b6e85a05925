// SPDX-License-Identifier: Apache-2.0

package cable

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"reflect"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.zx2c4.com/wireguard/conn"
	wg "golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/tuntest"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// end is a WireGuard device with one peer, whose packets are of the test.
type end struct {
	device  *wg.Device
	tun     *tuntest.ChannelTUN
	address netip.Addr
}

func newEnd(t *testing.T, key wgtypes.Key, address string) *end {
	t.Helper()
	e := &end{tun: tuntest.NewChannelTUN(), address: netip.MustParseAddr(address)}
	e.device = wg.NewDevice(e.tun.TUN(), conn.NewDefaultBind(), wg.NewLogger(wg.LogLevelSilent, ""))
	t.Cleanup(e.device.Close)
	e.set(t, fmt.Sprintf("private_key=%x\nlisten_port=0\n", key[:]))
	if err := e.device.Up(); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *end) set(t *testing.T, config string) {
	t.Helper()
	if err := e.device.IpcSet(config); err != nil {
		t.Fatal(err)
	}
}

func (e *end) port(t *testing.T) int {
	t.Helper()
	config, err := e.device.IpcGet()
	if err != nil {
		t.Fatal(err)
	}
	var port int
	if _, err := fmt.Sscanf(config[len("private_key=")+65:], "listen_port=%d", &port); err != nil {
		t.Fatalf("%v in %q", err, config)
	}
	return port
}

// meets makes another end the only peer, which it dials.
func (e *end) meets(t *testing.T, other *end, key wgtypes.Key) {
	t.Helper()
	e.set(t, fmt.Sprintf("replace_peers=true\npublic_key=%x\nendpoint=127.0.0.1:%d\nallowed_ip=%s/32\n", key[:],
		other.port(t), other.address))
}

// TestAPeerWhoseClockWentBackIsDialled: a gateway that comes back from a reboot an hour in the past cannot begin a
// handshake with those that know it, whose clocks tell WireGuard that it is replayed. Their own probes are not
// answered then, and so they begin one, after 15 s at most (KEEPALIVE_TIMEOUT and REKEY_TIMEOUT).
func TestAPeerWhoseClockWentBackIsDialled(t *testing.T) {
	const most = 20*time.Second + 5*time.Second // and once more after REKEY_TIMEOUT
	key, otherKey := newKey(t), newKey(t)
	other := newEnd(t, otherKey, "192.0.2.2")
	ahead := newEnd(t, key, "192.0.2.1")
	ahead.meets(t, other, otherKey.PublicKey())
	other.meets(t, ahead, key.PublicKey())
	var arrived atomic.Int64
	go func() {
		for range other.tun.Inbound {
			arrived.Add(1)
		}
	}()
	waitFor := func(within time.Duration, what string, sends ...*end) time.Duration {
		t.Helper()
		start, before := time.Now(), arrived.Load()
		for arrived.Load() == before {
			if time.Since(start) > within {
				t.Fatalf("not within %s: %s", within, what)
			}
			for _, e := range sends {
				to := other.address
				if e == other {
					to = ahead.address
				}
				e.tun.Outbound <- tuntest.Ping(to, e.address)
			}
			time.Sleep(50 * time.Millisecond)
		}
		return time.Since(start)
	}
	waitFor(5*time.Second, "the first packet", ahead)

	// It reboots, with a clock that is an hour behind that of its last handshake.
	ahead.device.Close()
	setLastTimestamp(other.device.LookupPeer(wg.NoisePublicKey(key.PublicKey())), time.Now().Add(time.Hour))
	back := newEnd(t, key, "192.0.2.1")
	back.meets(t, other, otherKey.PublicKey())
	other.set(t, fmt.Sprintf("public_key=%x\nupdate_only=true\nendpoint=127.0.0.1:%d\n", pub(key), back.port(t)))
	go func() {
		for range back.tun.Inbound {
		}
	}()
	t.Logf("a packet after %s", waitFor(most, "a packet, with probes of both", back, other))
}

func pub(key wgtypes.Key) []byte {
	public := key.PublicKey()
	return public[:]
}

func newKey(t *testing.T) wgtypes.Key {
	t.Helper()
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// setLastTimestamp makes a peer's last handshake one of a time, which is TAI64N.
func setLastTimestamp(peer *wg.Peer, at time.Time) {
	field := reflect.ValueOf(peer).Elem().FieldByName("handshake").FieldByName("lastTimestamp")
	stamp := (*[12]byte)(unsafe.Pointer(field.UnsafeAddr()))
	binary.BigEndian.PutUint64(stamp[:], 0x400000000000000a+uint64(at.Unix()))
	binary.BigEndian.PutUint32(stamp[8:], 0)
}
