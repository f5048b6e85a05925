// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// wireGuardCommand makes this program a WireGuard device: bench wireguard <link> <mtu>, with the device's
// configuration, and then the end of its life, on standard input.
const wireGuardCommand = "wireguard"

// wireGuardUp is what the device prints when it carries packets.
const wireGuardUp = "up"

func serveWireGuard(args []string) error {
	if len(args) != 2 {
		return errors.New("expected a link and an MTU")
	}
	mtu, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("parse the MTU: %w", err)
	}
	link, err := tun.CreateTUN(args[0], mtu)
	if err != nil {
		return fmt.Errorf("make tun link: %w", err)
	}
	wg := device.NewDevice(link, conn.NewDefaultBind(), device.NewLogger(device.LogLevelError, ""))
	defer wg.Close()
	lines := newLines(os.Stdin)
	config, err := lines.until("")
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	if err := wg.IpcSet(config); err != nil {
		return fmt.Errorf("configure the device: %w", err)
	}
	if err := wg.Up(); err != nil {
		return fmt.Errorf("bring the device up: %w", err)
	}
	fmt.Println(wireGuardUp)
	_, _ = io.Copy(io.Discard, lines.reader) // ends with the parent
	return nil
}

// peerConfig is a device's configuration in wireguard-go's own format, ended by an empty line.
func peerConfig(private, remote wgtypes.Key, port int, endpoint, allowed string) string {
	public := remote.PublicKey()
	return strings.Join([]string{
		"private_key=" + hex.EncodeToString(private[:]),
		"listen_port=" + strconv.Itoa(port),
		"public_key=" + hex.EncodeToString(public[:]),
		"endpoint=" + endpoint,
		"allowed_ip=" + allowed,
		"", "",
	}, "\n")
}
