#!/bin/sh
# runc as the node's containerd calls it. Kubelet names no cgroup for its pods (cgroupsPerQOS is off), and containerd's
# default is /k8s.io/<container> of the whole machine: here containers are below the node's.
previous=
for argument; do
  [ "$previous" != --bundle ] || sed -i 's#"cgroupsPath":"/k8s.io/#"cgroupsPath":"{{.Cgroup}}/#' "$argument/config.json"
  previous=$argument
done
exec runc "$@"
