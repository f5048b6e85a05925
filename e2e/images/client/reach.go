// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// tries of a datagram, for nobody repeats one that a busy machine has dropped.
const tries = 2

// reachCommand sends one thing after the other, each of a protocol and a size, and fails with all that did not come
// back whole. It does in one exec, which costs more than most of these, what would take many. Side by side, fragments
// would be too many at once for who encrypts in a process.
func reachCommand(args []string) error {
	flags := flag.NewFlagSet("reach", flag.ContinueOnError)
	timeout := flags.Duration("timeout", 3*time.Second, "time for one answer")
	rest, err := parse(flags, args, anyNumber)
	if err != nil {
		return err
	}
	var failed []error
	for _, what := range rest {
		if err := reach(what, *timeout); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", what, err))
		}
	}
	fmt.Printf("%d of %d\n", len(rest)-len(failed), len(rest))
	return errors.Join(failed...)
}

func reach(what string, timeout time.Duration) error {
	protocol, of, _ := strings.Cut(what, ",")
	number, address, _ := strings.Cut(of, ",")
	size, err := strconv.Atoi(number)
	if err != nil || address == "" {
		return errors.New("expected PROTOCOL,BYTES,ADDRESS")
	}
	send := map[string]func(address string, size int, timeout time.Duration) error{
		"udp": datagram, "icmp": ping, "tcp": body}[protocol]
	if send == nil {
		return errors.New("expected udp, icmp or tcp")
	}
	for range tries {
		if err = send(address, size, timeout); err == nil || protocol == "tcp" {
			break
		}
	}
	return err
}

// datagram is sent to an echo by UDP.
func datagram(address string, size int, timeout time.Duration) error {
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "udp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return roundTrip(conn, byte(rand.Uint32()), size, timeout)
}

// body of a whereami, of so many bytes, by TCP.
func body(address string, size int, timeout time.Duration) error {
	const perSecond = 1 << 20 // at least: much takes longer than one answer
	client := &http.Client{Timeout: timeout + time.Duration(size/perSecond)*time.Second,
		Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet,
		fmt.Sprintf("http://%s/body?bytes=%d", address, size), nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	n, err := io.Copy(io.Discard, response.Body)
	if err == nil && (n != int64(size) || response.StatusCode != http.StatusOK) {
		err = fmt.Errorf("%s with %d bytes", response.Status, n)
	}
	return err
}

// ping sends an echo request of ICMP by IPv4 with so many bytes, in fragments where that is more than fits a packet.
func ping(address string, size int, timeout time.Duration) error {
	const echoReply, echoRequest, header = 0, 8, 8
	to, err := net.ResolveIPAddr("ip4", address)
	if err != nil {
		return err
	}
	conn, err := (&net.ListenConfig{}).ListenPacket(context.Background(), "ip4:icmp", "0.0.0.0")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	request := make([]byte, header+size)
	request[0] = echoRequest
	binary.BigEndian.PutUint32(request[4:], rand.Uint32()) // identifier and number: others on the node ping, too
	for i := range size {
		request[header+i] = byte(i)
	}
	binary.BigEndian.PutUint16(request[2:], checksum(request))
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := conn.WriteTo(request, to); err != nil {
		return err
	}
	for received := make([]byte, 1<<16); ; {
		n, from, err := conn.ReadFrom(received)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("no echo within %s", timeout)
		}
		if err != nil {
			return err
		}
		if from.String() == to.String() && n == len(request) && received[0] == echoReply &&
			bytes.Equal(received[4:n], request[4:]) {
			return nil
		}
	}
}

// checksum of a message of ICMP (RFC 1071).
func checksum(message []byte) uint16 {
	var sum uint32
	for i := 0; i < len(message); i += 2 {
		sum += uint32(message[i]) << 8
		if i+1 < len(message) {
			sum += uint32(message[i+1])
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
