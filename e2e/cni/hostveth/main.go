// SPDX-License-Identifier: Apache-2.0

// Command hostveth is a CNI plugin that is chained after macvlan, which keeps a pod from its own node. It adds what
// Spiderpool's coordinator does: a veth between the pod and its node, by which the pod reaches the node, Services and
// whatever else the node is to route, and the node its pod.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
)

// config is what the plugin gets on its standard input.
type config struct {
	// Node is the node's address.
	Node netip.Addr `json:"node"`
	// Routes are the networks that pods reach by their node.
	Routes []netip.Prefix `json:"routes"`
	// PrevResult is what the plugin before it made, which is also its own result.
	PrevResult json.RawMessage `json:"prevResult"`
}

func main() {
	if err := run(os.Getenv("CNI_COMMAND"), os.Stdin, os.Stdout); err != nil {
		// The error result of the CNI specification; codes from 100 on are the plugins' own.
		_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"cniVersion": "0.4.0", "code": 100, "msg": err.Error()})
		os.Exit(1)
	}
}

func run(command string, in io.Reader, out io.Writer) error {
	switch command {
	case "VERSION":
		_, err := io.WriteString(out, `{"cniVersion": "0.4.0", "supportedVersions": ["0.3.1", "0.4.0"]}`)
		return err
	case "ADD":
		var c config
		if err := json.NewDecoder(in).Decode(&c); err != nil {
			return fmt.Errorf("read configuration: %w", err)
		}
		if err := c.add(hostLink(), os.Getenv("CNI_NETNS")); err != nil {
			return err
		}
		_, err := out.Write(c.PrevResult)
		return err
	case "DEL":
		return remove(hostLink())
	default:
		return nil
	}
}

// hostLink is the node's end of a pod's veth.
func hostLink() string {
	id := os.Getenv("CNI_CONTAINERID")
	return "mv" + id[:min(len(id), 12)]
}

// add connects a pod with its node.
func (c config) add(link, netns string) error {
	addresses, err := podAddresses(c.PrevResult)
	if err != nil {
		return err
	}
	if err := ip("", "link add "+link+" type veth peer name veth0 netns "+netns, "link set "+link+" up"); err != nil {
		return err
	}
	// Answers to what comes by the veth from elsewhere may leave by the underlay.
	const loose = "for link in all eth0 veth0; do echo 0 >/proc/sys/net/ipv4/conf/$link/rp_filter; done"
	if err := command("", "nsenter", "--net="+netns, "--", "sh", "-c", loose); err != nil {
		return err
	}
	if err := ip(netns, c.podLines(addresses[0])...); err != nil {
		return err
	}
	var lines []string
	for _, a := range addresses {
		lines = append(lines, fmt.Sprintf("route add %s/32 dev %s src %s", a, link, c.Node))
	}
	return ip("", lines...)
}

// podLines are the commands of ip(8) in a pod's network namespace.
func (c config) podLines(address netip.Addr) []string {
	lines := []string{"link set veth0 up", fmt.Sprintf("route add %s/32 dev veth0 src %s", c.Node, address)}
	for _, p := range c.Routes {
		lines = append(lines, fmt.Sprintf("route add %s via %s dev veth0 src %s", p, c.Node, address))
	}
	return lines
}

// podAddresses reads the addresses that the plugin before gave to a pod; there is at least one.
func podAddresses(result []byte) ([]netip.Addr, error) {
	var r struct {
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, fmt.Errorf("read prevResult: %w", err)
	}
	var out []netip.Addr
	for _, i := range r.IPs {
		out = append(out, i.Address.Addr())
	}
	if len(out) == 0 {
		return nil, errors.New("prevResult: expected addresses of a plugin before, found none")
	}
	return out, nil
}

// remove deletes a pod's veth, which may be gone with the pod's network namespace.
func remove(link string) error {
	err := ip("", "link del "+link)
	if err != nil && strings.Contains(err.Error(), "Cannot find device") {
		return nil
	}
	return err
}

// ip runs lines of ip(8) in a network namespace, given by its path, or in the node's.
func ip(netns string, lines ...string) error {
	argv := []string{"ip", "-batch", "-"}
	if netns != "" {
		argv = append([]string{"nsenter", "--net=" + netns, "--"}, argv...)
	}
	return command(strings.Join(lines, "\n")+"\n", argv...)
}

func command(stdin string, argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // the runtime ends a plugin that takes too long
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
