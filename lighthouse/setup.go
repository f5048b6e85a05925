// SPDX-License-Identifier: Apache-2.0

package lighthouse

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/fall"
	clog "github.com/coredns/coredns/plugin/pkg/log"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

const (
	// defaultTTL of records, in seconds.
	defaultTTL = 5
	// maxTTL of records, in seconds, as CoreDNS's kubernetes plugin bounds it.
	maxTTL = 3600
	// startupWait is how long the server waits for the first Snapshot before it answers without: so a
	// reload of the Corefile does not interrupt answers.
	startupWait = 5 * time.Second
)

// settings are what the directive says.
type settings struct {
	// zones to answer; none leaves them to the Peering.
	zones []string
	// kubeconfig and context of the cluster; without, the pod's own cluster.
	kubeconfig, context string
	// service whose addresses ns.dns.<zone> has; without a name it has none.
	service types.NamespacedName
	// ttl overrides that of the Peering; nil where the directive sets none.
	ttl  *uint32
	fall fall.F
}

// Setup sets the plugin up from its directive:
//
//	lighthouse [ZONES...] {
//	    kubeconfig PATH [CONTEXT]
//	    service NAMESPACE/NAME
//	    ttl SECONDS
//	    fallthrough [ZONES...]
//	}
//
// Without ZONES it answers the domains of the Peering, and without ttl with the TTL of the Peering.
// The ClusterIPs of the Service are the addresses of ns.dns.ZONE.
func Setup(c *caddy.Controller) error {
	set, err := parseDirective(c)
	if err != nil {
		return plugin.Error(Name, err)
	}
	m, err := newMeasures(prometheus.DefaultRegisterer)
	if err != nil {
		return plugin.Error(Name, err)
	}
	config, err := set.restConfig()
	if err != nil {
		return plugin.Error(Name, err)
	}
	x := newIndex(set.zones)
	l := &Lighthouse{ttl: set.ttl, fall: set.fall, measures: m}
	l.current.Store(x.current)
	log := clog.NewWithPlugin(Name)
	w, err := newWatcher(config, set.service, x, m, log, l.current.Store)
	if err != nil {
		return plugin.Error(Name, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c.OnStartup(func() error {
		go w.run(ctx)
		select {
		case <-w.synced:
		case <-time.After(startupWait):
			log.Warning("starting before all objects were read: queries fail until they are")
		}
		return nil
	})
	c.OnShutdown(func() error {
		stop()
		return nil
	})
	dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
		l.next = next
		return l
	})
	return nil
}

// parseDirective reads the directive.
func parseDirective(c *caddy.Controller) (settings, error) {
	set := settings{}
	seen := false
	for c.Next() {
		if seen {
			return set, plugin.ErrOnce
		}
		seen = true
		for _, arg := range c.RemainingArgs() {
			z := zone(arg)
			if !isZone(z) {
				return set, c.Errf("zone %q is not a domain name", arg)
			}
			set.zones = append(set.zones, z)
		}
		for c.NextBlock() {
			if err := set.property(c); err != nil {
				return set, err
			}
		}
	}
	return set, nil
}

// property reads one line of the directive's block.
func (set *settings) property(c *caddy.Controller) error {
	name, args := c.Val(), c.RemainingArgs()
	switch name {
	case "kubeconfig":
		if len(args) < 1 || len(args) > 2 {
			return c.Err("kubeconfig takes a path and may take a context")
		}
		set.kubeconfig = args[0]
		if len(args) == 2 {
			set.context = args[1]
		}
	case "service":
		if len(args) != 1 {
			return c.Err("service takes a namespace and a name, such as sealane-system/sealane-dns")
		}
		namespace, name, _ := strings.Cut(args[0], "/")
		if !isLabel(namespace) || !isLabel(name) {
			return c.Errf("service %q is not a namespace and a name, such as sealane-system/sealane-dns", args[0])
		}
		set.service = types.NamespacedName{Namespace: namespace, Name: name}
	case "ttl":
		if len(args) != 1 {
			return c.Err("ttl takes a number of seconds")
		}
		ttl, err := strconv.ParseUint(args[0], 10, 32)
		if err != nil || ttl > maxTTL {
			return c.Errf("ttl %q is not a number of seconds from 0 to %d", args[0], maxTTL)
		}
		set.ttl = ptr.To(uint32(ttl))
	case "fallthrough":
		set.fall.SetZonesFromArgs(args)
	default:
		return c.Errf("unknown property %q: expected kubeconfig, service, ttl or fallthrough", name)
	}
	return nil
}

// restConfig returns the way to the API server.
func (set *settings) restConfig() (*rest.Config, error) {
	config, err := set.loadConfig()
	if err != nil {
		return nil, err
	}
	config.UserAgent = "sealane-dns"
	return config, nil
}

func (set *settings) loadConfig() (*rest.Config, error) {
	if set.kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no kubeconfig is given and this is no pod: %w", err)
		}
		return config, nil
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: set.kubeconfig}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: set.context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", set.kubeconfig, err)
	}
	return config, nil
}
