// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// CableLink is the link of a gateway's cable to gateways of slot 0.
const CableLink = "sl-c0"

// WireGuard is the control socket of the in-process WireGuard of a gateway, open to whoever is root on the node.
type WireGuard struct{ socket string }

// WireGuardOf finds the socket of CableLink in the file system of the node agent's container. An agent that has just
// ended, as one of a former test, may have left one that nobody answers at.
func WireGuardOf(t *testing.T, node string) WireGuard {
	t.Helper()
	var found WireGuard
	Eventually(t, Patience, func(ctx context.Context) error {
		sockets, err := wireGuards(node)
		if err != nil {
			return err
		}
		for _, w := range sockets {
			if _, err = w.ask(ctx, "get=1"); err == nil {
				found = w
				return nil
			}
		}
		return fmt.Errorf("no in-process WireGuard answers on %s; this test cannot configure the kernel's: %w", node, err)
	})
	return found
}

// wireGuards are the sockets of CableLink on a node, at least one.
func wireGuards(node string) ([]WireGuard, error) {
	ns, err := os.Stat(filepath.Join("/run/netns", Lab().Netns(node)))
	if err != nil {
		return nil, err
	}
	var out []WireGuard
	for _, at := range []string{"/root/var/run/wireguard/" + CableLink + ".sock", "/root/run/wireguard/" +
		CableLink + ".sock"} {
		found, err := filepath.Glob("/proc/[0-9]*" + at)
		if err != nil {
			return nil, err
		}
		for _, socket := range found {
			its, err := os.Stat(strings.TrimSuffix(socket, at) + "/ns/net")
			if err == nil && os.SameFile(ns, its) {
				out = append(out, WireGuard{socket})
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no socket of WireGuard for %s on %s", CableLink, node)
	}
	return out, nil
}

// ask sends one request of WireGuard's cross-platform interface and returns the answer.
func (w WireGuard) ask(ctx context.Context, request string) ([]string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", w.socket)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte(request + "\n\n")); err != nil {
		return nil, err
	}
	var lines []string
	for scanner := bufio.NewScanner(conn); scanner.Scan() && scanner.Text() != ""; {
		lines = append(lines, scanner.Text())
	}
	if len(lines) == 0 || lines[len(lines)-1] != "errno=0" {
		return nil, fmt.Errorf("WireGuard answers %q to %q", lines, request)
	}
	return lines, nil
}

// Peer is a peer of a WireGuard device.
type Peer struct {
	key string
	// Allowed lists its allowed IPs.
	Allowed []string
	// Received is in bytes.
	Received int
}

// Peer reads a peer by its public key.
func (w WireGuard) Peer(ctx context.Context, publicKey string) (Peer, error) {
	raw, err := base64.StdEncoding.DecodeString(publicKey)
	if err != nil {
		return Peer{}, err
	}
	p := Peer{key: hex.EncodeToString(raw), Received: -1}
	lines, err := w.ask(ctx, "get=1")
	at := ""
	for _, line := range lines {
		switch key, value, _ := strings.Cut(line, "="); {
		case key == "public_key":
			at = value
		case at == p.key && key == "allowed_ip":
			p.Allowed = append(p.Allowed, value)
		case at == p.key && key == "rx_bytes":
			p.Received, err = strconv.Atoi(value)
		}
	}
	if err == nil && p.Received < 0 {
		err = fmt.Errorf("no peer %s among %d lines", publicKey, len(lines))
	}
	return p, err
}

// Allow replaces the allowed IPs of a peer. The node agent corrects them within half a minute.
func (w WireGuard) Allow(ctx context.Context, p Peer, allowed ...string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "set=1\npublic_key=%s\nupdate_only=true\nreplace_allowed_ips=true", p.key)
	for _, a := range allowed {
		fmt.Fprintf(&b, "\nallowed_ip=%s", a)
	}
	_, err := w.ask(ctx, b.String())
	return err
}
