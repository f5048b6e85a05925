// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func hostPort(a netip.Addr, port int) string {
	return net.JoinHostPort(a.String(), strconv.Itoa(port))
}

func (l *Lab) address() netip.Addr { return l.hostAddr(IPv4) }

func (l *Lab) etcdURL() string { return "http://" + hostPort(l.address(), portEtcdClient) }

func (l *Lab) karmadaURL() string { return "https://" + hostPort(l.address(), portKarmadaAPI) }

func (l *Lab) memberURL(i int) string {
	return "https://" + hostPort(l.address(), memberPort(portMemberAPI, i))
}

func memberPort(base, i int) int { return base + 10*i }

func flag(name string, value any) string { return fmt.Sprintf("--%s=%v", name, value) }

// startEtcd starts the one etcd of the lab: every API server has a prefix in it.
func (l *Lab) startEtcd() error {
	peer := "http://" + hostPort(l.address(), portEtcdPeer)
	if err := os.MkdirAll(l.path("etcd"), 0o700); err != nil {
		return fmt.Errorf("create etcd's directory: %w", err)
	}
	return l.procs.Ensure(process{Name: "etcd", Argv: []string{
		l.tools.path("etcd"),
		flag("name", "lab"),
		flag("data-dir", l.path("etcd")),
		"--unsafe-no-fsync",
		flag("listen-client-urls", l.etcdURL()),
		flag("advertise-client-urls", l.etcdURL()),
		flag("listen-peer-urls", peer),
		flag("initial-advertise-peer-urls", peer),
		flag("initial-cluster", "lab="+peer),
		flag("quota-backend-bytes", 4<<30),
	}})
}

// openPKI makes the authority of a control plane and every credential in it.
func (l *Lab) openPKI(cluster, server string, serverIPs ...netip.Addr) (*authority, error) {
	ca, err := openAuthority(l.path("pki", cluster), "sealane-lab-"+cluster)
	if err != nil {
		return nil, err
	}
	if err := ca.IssueServiceAccountKey(); err != nil {
		return nil, err
	}
	ips := append([]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback(), l.address(), l.hostAddr(IPv6)},
		serverIPs...)
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local",
		"karmada-aggregated-apiserver.karmada-system.svc"}
	if err := ca.Issue("server", pkix.Name{CommonName: cluster}, names, ips); err != nil {
		return nil, err
	}
	if err := ca.Issue("front-proxy", pkix.Name{CommonName: "front-proxy-client"}, nil, nil); err != nil {
		return nil, err
	}
	for name, subject := range map[string]pkix.Name{
		"admin":              {CommonName: "system:admin", Organization: []string{"system:masters"}},
		"controller-manager": {CommonName: "system:kube-controller-manager"},
		"scheduler":          {CommonName: "system:kube-scheduler"},
		"kube-proxy":         {CommonName: "system:kube-proxy"},
	} {
		if err := ca.Issue(name, subject, nil, nil); err != nil {
			return nil, err
		}
		if err := ca.Kubeconfig(name, cluster, server); err != nil {
			return nil, err
		}
	}
	return ca, nil
}

// apiServerFlags are those that Karmada's and the members' API servers share.
func (l *Lab) apiServerFlags(cluster string, port int) []string {
	pki := func(name string) string { return l.path("pki", cluster, name) }
	return []string{
		l.tools.path("kube-apiserver"),
		flag("etcd-servers", l.etcdURL()),
		flag("etcd-prefix", "/"+cluster),
		flag("bind-address", l.address()),
		flag("advertise-address", l.address()),
		flag("secure-port", port),
		flag("client-ca-file", pki("ca.crt")),
		flag("tls-cert-file", pki("server.crt")),
		flag("tls-private-key-file", pki("server.key")),
		flag("service-account-issuer", "https://kubernetes.default.svc.cluster.local"),
		flag("service-account-key-file", pki("sa.pub")),
		flag("service-account-signing-key-file", pki("sa.key")),
		flag("requestheader-client-ca-file", pki("ca.crt")),
		flag("requestheader-allowed-names", "front-proxy-client"),
		flag("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
		flag("requestheader-group-headers", "X-Remote-Group"),
		flag("requestheader-username-headers", "X-Remote-User"),
		flag("proxy-client-cert-file", pki("front-proxy.crt")),
		flag("proxy-client-key-file", pki("front-proxy.key")),
		flag("enable-bootstrap-token-auth", true),
		flag("allow-privileged", true),
	}
}

// startMemberAPI starts a member's API server.
func (l *Lab) startMemberAPI(i int) error {
	c := l.Topology.Clusters[i]
	primary, _ := c.primaryServiceCIDRs()
	pki := func(name string) string { return l.path("pki", c.Name, name) }
	argv := append(l.apiServerFlags(c.Name, memberPort(portMemberAPI, i)),
		flag("authorization-mode", "Node,RBAC"),
		flag("enable-admission-plugins", "NodeRestriction"),
		flag("service-cluster-ip-range", join(primary)),
		flag("kubelet-client-certificate", pki("admin.crt")),
		flag("kubelet-client-key", pki("admin.key")),
		flag("kubelet-preferred-address-types", "InternalIP"),
	)
	return l.procs.Ensure(process{Name: c.Name + "-apiserver", Argv: argv})
}

// startMemberControllers starts what makes an API server a cluster.
func (l *Lab) startMemberControllers(i int) error {
	c := l.Topology.Clusters[i]
	pki := func(name string) string { return l.path("pki", c.Name, name) }
	err := l.procs.Ensure(process{Name: c.Name + "-controller-manager", Argv: append(
		l.controllerManagerFlags(c.Name, "controller-manager", memberPort(portMemberKCM, i)),
		flag("use-service-account-credentials", true),
		flag("allocate-node-cidrs", false),
	)})
	if err != nil {
		return err
	}
	return l.procs.Ensure(process{Name: c.Name + "-scheduler", Argv: []string{
		l.tools.path("kube-scheduler"),
		flag("kubeconfig", pki("scheduler.kubeconfig")),
		flag("authentication-kubeconfig", pki("scheduler.kubeconfig")),
		flag("authorization-kubeconfig", pki("scheduler.kubeconfig")),
		flag("bind-address", l.address()),
		flag("secure-port", memberPort(portMemberSched, i)),
		flag("leader-elect", false),
	}})
}

// controllerManagerFlags are those that Karmada's and the members' share. The identity is that of one of
// the cluster's kubeconfigs.
func (l *Lab) controllerManagerFlags(cluster, identity string, port int) []string {
	pki := func(name string) string { return l.path("pki", cluster, name) }
	return []string{
		l.tools.path("kube-controller-manager"),
		flag("kubeconfig", pki(identity+".kubeconfig")),
		flag("authentication-kubeconfig", pki(identity+".kubeconfig")),
		flag("authorization-kubeconfig", pki(identity+".kubeconfig")),
		flag("bind-address", l.address()),
		flag("secure-port", port),
		flag("leader-elect", false),
		flag("service-account-private-key-file", pki("sa.key")),
		flag("root-ca-file", pki("ca.crt")),
	}
}

// apiReady waits until the API server of a context says it is ready.
func (l *Lab) apiReady(ctx context.Context, name string) error {
	config, err := l.RESTConfig(name)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client of %s: %w", name, err)
	}
	return poll(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Timeout(2 * time.Second).DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("API server %s: %w", name, err)
		}
		return nil
	})
}

// addServiceCIDRs creates those beyond the first of a family, which an API
// server does not take as flags.
func (l *Lab) addServiceCIDRs(ctx context.Context, i int) error {
	c := l.Topology.Clusters[i]
	_, further := c.primaryServiceCIDRs()
	if len(further) == 0 {
		return nil
	}
	config, err := l.RESTConfig(c.Name)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client of %s: %w", c.Name, err)
	}
	for n, p := range further {
		cidr := &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("further-%d", n+1)},
			Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{p.String()}},
		}
		_, err := client.NetworkingV1().ServiceCIDRs().Create(ctx, cidr, metav1.CreateOptions{})
		if err := ignoreExists(err); err != nil {
			return fmt.Errorf("add service CIDR %s: %w", p, err)
		}
	}
	return nil
}

func ignoreExists(err error) error {
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("create: %w", err)
}
