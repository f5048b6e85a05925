// SPDX-License-Identifier: Apache-2.0

// Package cable makes the encrypted links between gateways. A cable is a WireGuard device: the kernel's
// where it has one, and wireguard-go in this process otherwise. Either is configured in the same way,
// through wgctrl. Userspace devices live as long as the process; whoever opens a cable after a restart
// makes its links anew with the same key, and the peers' next handshake revives the tunnel.
package cable
