// SPDX-License-Identifier: Apache-2.0

// Package lab boots a real Karmada with real member clusters on one Linux
// machine, without a container engine, a registry or a cloud.
//
// A control plane is a handful of host processes listening on the lab's own
// address. A node is a network namespace with its own mount and UTS
// namespaces, in which containerd, kubelet and kube-proxy run as on a machine
// of their own: /run, /var and /etc of two nodes stand apart.
//
//	host namespace              underlay namespace              node namespaces
//	etcd, API servers, Karmada  routes between clusters         containerd, kubelet, kube-proxy
//	lab7 172.30.112.1/24 ────── host 172.30.112.2
//	                            br1 172.30.113.1/24 ─────────── c1-gw     eth0 172.30.113.11
//	                                                └────────── c1-worker eth0 172.30.113.12
//	                            br2 172.30.114.1/24 ─────────── c2-gw     eth0 172.30.114.11
//
// Nothing outside the lab's own namespaces and links is changed: no sysctl, no
// forwarding, no foreign route, no firewall rule. Everything a lab starts is
// written down before it is started, so that Down finds it after any crash.
package lab
