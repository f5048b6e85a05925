//go:build deps

package deps

import (
	_ "github.com/coredns/coredns/core/plugin"
	_ "github.com/coredns/coredns/coremain"
	_ "github.com/coreos/go-iptables/iptables"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/google/go-containerregistry/pkg/v1/mutate"
	_ "github.com/google/go-containerregistry/pkg/v1/tarball"
	_ "github.com/karmada-io/karmada/pkg/controllers/ctrlutil"
	_ "github.com/karmada-io/karmada/pkg/util/names"
	_ "github.com/miekg/dns"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/spf13/cobra"
	_ "github.com/vishvananda/netlink"
	_ "golang.org/x/tools/txtar"
	_ "golang.zx2c4.com/wireguard/device"
	_ "golang.zx2c4.com/wireguard/ipc"
	_ "golang.zx2c4.com/wireguard/tun"
	_ "golang.zx2c4.com/wireguard/wgctrl"
	_ "k8s.io/cli-runtime/pkg/genericclioptions"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/tools/portforward"
	_ "k8s.io/client-go/transport/spdy"
	_ "sigs.k8s.io/controller-runtime"
	_ "sigs.k8s.io/knftables"
	_ "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	_ "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	_ "sigs.k8s.io/yaml"
)
