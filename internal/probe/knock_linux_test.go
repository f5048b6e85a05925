// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

const from = 61321

// listener on a free port, which reads all that it gets.
func listener(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends with the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func TestAKnockSaysWhereItEnds(t *testing.T) {
	open := listener(t)
	silent, err := net.ListenPacket("udp", "127.0.0.1:0") //nolint:noctx // it ends with the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for name, c := range map[string]struct {
		knock Knock
		stage Stage
	}{
		"a server":          {Knock{Network: "tcp", Host: "127.0.0.1", Port: open, From: from}, Answered},
		"a name":            {Knock{Network: "tcp", Host: "localhost", Port: open, From: from + 1}, Answered},
		"no server":         {Knock{Network: "tcp", Host: "127.0.0.1", Port: 1, From: from + 2}, Refused},
		"no name":           {Knock{Network: "tcp", Host: "no.invalid", Port: 1, From: from + 3}, Resolving},
		"no server, by UDP": {Knock{Network: "udp", Host: "127.0.0.1", Port: 1, From: from + 4}, Refused},
		"a silent server": {Knock{Network: "udp", Host: "127.0.0.1", From: from + 5,
			Port: uint16(silent.LocalAddr().(*net.UDPAddr).Port)}, NoAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := c.knock.Run(t.Context())
			if got.Stage != c.stage || (got.Stage == Answered) != (got.Error == "") || got.Took > LongestKnock {
				t.Errorf("%+v", got)
			}
			text, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := ParseKnocked(text); err != nil || back.Stage != got.Stage || back.To != got.To {
				t.Errorf("%s is read as %+v, %v", text, back, err)
			}
		})
	}
}

// TestServersOfDNSGetAQuery of two sizes, which begins with the mark: they do not answer anything else.
func TestServersOfDNSGetAQuery(t *testing.T) {
	mark := Mark(domain, 0xdeadbeef)
	for _, size := range []int{32, 1200} {
		payload, err := Knock{Network: "udp", Port: domain, Mark: mark}.payload(size)
		if err != nil || len(payload) != size || binary.BigEndian.Uint32(payload) != mark {
			t.Fatalf("%d: %x, %v", size, payload, err)
		}
		var m dns.Msg
		if err := m.Unpack(payload); err != nil || m.Response || m.Opcode != dns.OpcodeQuery || len(m.Question) != 1 ||
			m.Id != 0xdead || m.IsEdns0() == nil {
			t.Errorf("%d: %v, %v", size, &m, err)
		}
	}
	payload, err := Knock{Network: "udp", Port: domain + 1, Mark: Mark(domain+1, 7)}.payload(32)
	if err != nil || len(payload) != 32 || binary.BigEndian.Uint32(payload) != 7 {
		t.Errorf("%x, %v", payload, err)
	}
}

func TestResultsOfKnocksAreNotTrusted(t *testing.T) {
	for _, text := range []string{"", "{}", `{"stage":"fine"}`, `{"stage":"refused","to":7}`,
		`{"stage":"refused","error":"` + strings.Repeat("x", MaxLine) + `"}`,
		`{"stage":"refused","resolved":[` + strings.Repeat(`"10.0.0.1",`, maxResolved) + `"10.0.0.1"]}`} {
		if k, err := ParseKnocked([]byte(text)); err == nil {
			t.Errorf("%s is taken as %+v", text, k)
		}
	}
	k, err := ParseKnocked([]byte(`{"stage":"refused","error":"a\u001b[31m\n` + strings.Repeat("y", 1000) + `"}`))
	if err != nil || strings.ContainsAny(k.Error, "\x1b\n") || len(k.Error) > maxError {
		t.Errorf("%+v, %v", k, err)
	}
}
