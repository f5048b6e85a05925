#!/bin/sh
# The mounts of one lab node; what stays is the process that holds them.
# Started in the node's network namespace with fresh mount and UTS namespaces.
set -eu
cd {{.Files}}
rm -f ready
mkdir -p var/upper var/work etc-work containerd kubelet
hostname {{.Name}}

# Its own /etc and /var on top of the machine's, its own /run.
mount -t overlay node-etc -o lowerdir=/etc,upperdir={{.Files}}/etc,workdir={{.Files}}/etc-work /etc
mount -t overlay node-var -o lowerdir=/var,upperdir={{.Files}}/var/upper,workdir={{.Files}}/var/work /var
mount -t tmpfs node-run /run
mkdir -p /run/lock /run/netns /run/containerd
mkdir -p /var/lib/containerd /var/lib/kubelet /var/lib/cni /var/log/pods /var/log/containers /var/lib/sealane

# Container snapshots are overlays themselves and cannot lie on one.
mount --bind containerd /var/lib/containerd
mount --bind kubelet /var/lib/kubelet

# Settings of the whole machine, as kubelet wants to see them.
{{range $key, $value := .FakeSysctls}}
[ ! -e /proc/sys/{{$key}} ] || mount --bind sysctl/{{$key}} /proc/sys/{{$key}}
{{- end}}

mount --make-rshared /
touch ready
exec sleep infinity
