// SPDX-License-Identifier: Apache-2.0

package clusterdns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coredns/caddy/caddyfile"

	"github.com/sealane-io/sealane/internal/dnszone"
)

// Served is a zone, or a single name, that a Corefile answers.
type Served struct {
	// Zone is normalized; see package dnszone.
	Zone string
	// Name says that nothing below it is answered.
	Name bool
	// By is the server block or the plugin, as a person finds it in the Corefile.
	By string
	// Block says that Zone is the key of a server block; Bind has the addresses that it binds to, and To those that it
	// forwards all names to.
	Block    bool
	Bind, To []string
	// Port of the server block.
	Port string
	// Cluster says that Zone has the cluster's own names: it is served by the kubernetes plugin.
	Cluster bool
	// Domain is the cluster domain of that plugin, "" where it has none.
	Domain string
	// Limited is a property of that plugin, as written, by which it may answer for less than the cluster that it runs
	// in, or for another; "" where it has none.
	Limited string
}

// ForwardsTo says whether a server block forwards all names to this address, and to no other.
func (s *Served) ForwardsTo(to netip.Addr) bool {
	return len(s.To) > 0 && !slices.ContainsFunc(s.To, func(text string) bool {
		if port, err := netip.ParseAddrPort(text); err == nil && port.Port() == portOfDNS {
			return port.Addr() != to
		}
		addr, err := netip.ParseAddr(text)
		return err != nil || addr != to
	})
}

// arguments of the first line of a plugin.
func arguments(tokens []caddyfile.Token) []string {
	d := caddyfile.NewDispenserTokens("Corefile", tokens)
	d.Next()
	return d.RemainingArgs()
}

// forwards returns the addresses that the plugin forward sends every name to.
func forwards(tokens []caddyfile.Token) []string {
	if args := arguments(tokens); len(args) > 1 && args[0] == "." {
		return args[1:]
	}
	return nil
}

// takes says whether a domain of the ClusterSet would take names away from what is served, or hide behind it.
func (s *Served) takes(domain string) bool {
	switch {
	case s.Zone == "":
		return false
	case s.Name:
		return dnszone.Within(s.Zone, domain)
	}
	return dnszone.Overlap(s.Zone, domain)
}

// ServedBy returns all that a Corefile answers, the root zone included. Files that it imports are not read: they
// are on CoreDNS's own disk.
func ServedBy(corefile string) ([]Served, error) {
	blocks, err := caddyfile.Parse("Corefile", strings.NewReader(withoutFiles(corefile)), nil)
	if err != nil {
		return nil, fmt.Errorf("parse the Corefile: %w", err)
	}
	var out []Served
	for _, b := range blocks {
		port := "53"
		for i, key := range b.Keys {
			zone, p := zoneAndPort(key)
			if i == 0 {
				port = p
			}
			out = append(out, Served{Zone: zone, By: "the server block " + key, Port: p, Block: true,
				Bind: arguments(b.Tokens["bind"]), To: forwards(b.Tokens["forward"])})
		}
		for _, directive := range sorted(b.Tokens) {
			for _, s := range plugin(directive, b.Tokens[directive]) {
				s.By, s.Port = fmt.Sprintf("the plugin %s in the server block %s", directive, strings.Join(b.Keys, " ")), port
				out = append(out, s)
			}
		}
	}
	return out, nil
}

// withoutFiles leaves out lines that import something other than a snippet of the same Corefile.
func withoutFiles(corefile string) string {
	snippets := map[string]bool{}
	for line := range strings.Lines(corefile) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "("); ok {
			name, _, _ = strings.Cut(name, ")")
			snippets[name] = true
		}
	}
	var b strings.Builder
	for line := range strings.Lines(corefile) {
		if words := strings.Fields(line); len(words) > 1 && strings.Trim(words[0], `"`) == "import" && !snippets[words[1]] {
			b.WriteByte('\n')
			continue
		}
		b.WriteString(line)
	}
	return b.String()
}

func sorted(tokens map[string][]caddyfile.Token) []string {
	out := make([]string, 0, len(tokens))
	for directive := range tokens {
		out = append(out, directive)
	}
	slices.Sort(out)
	return out
}

// passive are the plugins that answer no name of their own, whatever their arguments.
var passive = []string{
	"acl", "any", "autopath", "bind", "bufsize", "cache", "cancel", "chaos", "debug", "dns64", "dnssec",
	"dnstap", "errors",
	"geoip", "header", "health", "import", "loadbalance", "local", "log", "loop", "metadata", "minimal", "multisocket",
	"nsid", "on", "pprof", "prometheus", "quic", "ready", "reload", "root", "shutdown", "startup", "timeouts",
	"tls", "trace",
	"transfer", "tsig", "view", "whoami",
}

// plugin returns what the instances of one plugin in one server block answer. Of a plugin that is not known every
// argument that may be a zone counts as one.
func plugin(name string, tokens []caddyfile.Token) []Served {
	if slices.Contains(passive, name) {
		return nil
	}
	var out []Served
	d := caddyfile.NewDispenserTokens("Corefile", tokens)
	for d.Next() {
		args := d.RemainingArgs()
		if name == "rewrite" {
			out = append(out, rewritten(args)...)
			args = nil
		}
		from := len(out)
		for _, zone := range zones(name, args) {
			out = append(out, Served{Zone: zone, Cluster: name == "kubernetes"})
		}
		of := out[from:]
		for i := range of {
			of[i].Domain = clusterDomain(of)
		}
		for d.NextBlock() {
			line := append([]string{d.Val()}, d.RemainingArgs()...)
			switch {
			case name == "hosts":
				out = append(out, hosts(line)...)
			case name == "kubernetes" && !slices.Contains(unlimited, line[0]):
				for i := range of {
					of[i].Limited = line[0]
				}
			}
		}
	}
	return out
}

// unlimited are the properties of the kubernetes plugin that do not change which Services' addresses have names.
var unlimited = []string{
	"endpoint_pod_names", "fallthrough", "ignore", "multicluster", "noendpoints", "pods", "resyncperiod",
	"startup_timeout",
	"transfer", "ttl", "upstream",
}

// clusterDomain of the kubernetes plugin: the first of its zones that holds no names of addresses.
func clusterDomain(served []Served) string {
	for i := range served {
		if s := &served[i]; s.Cluster && !dnszone.Within(s.Zone, "arpa") {
			return s.Zone
		}
	}
	return ""
}

// zones among the arguments of a plugin.
func zones(plugin string, args []string) []string {
	switch plugin {
	case "forward", "grpc", "proxy":
		args = args[:min(1, len(args))]
	case "file", "hosts", "sign":
		args = args[min(1, len(args)):]
	case "template":
		args = args[min(2, len(args)):]
	}
	var out []string
	for _, arg := range args {
		// Plugins of clouds name a zone and its number: "example.org.:Z1".
		for part := range strings.SplitSeq(arg, ":") {
			if zone := dnszone.Normalize(part); isDomain(zone) || isNetwork(zone) {
				out = append(out, zone)
			}
		}
	}
	return out
}

// hosts returns the names of one line of the hosts plugin: an address and the names that have it.
func hosts(line []string) []Served {
	ip, err := netip.ParseAddr(line[0])
	if err != nil {
		return nil
	}
	var out []Served
	for _, name := range zonesOf(netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen())) {
		out = append(out, Served{Zone: name, Name: true})
	}
	for _, name := range line[1:] {
		out = append(out, Served{Zone: dnszone.Normalize(name), Name: true})
	}
	return out
}

// rewritten returns the name, or the zone, that a rule of the rewrite plugin makes an answer for.
func rewritten(args []string) []Served {
	if len(args) > 0 && (args[0] == "continue" || args[0] == "stop") {
		args = args[1:]
	}
	if len(args) < 3 || args[0] != "name" {
		return nil
	}
	switch args[1] {
	case "suffix":
		return []Served{{Zone: dnszone.Normalize(strings.TrimPrefix(args[2], "."))}}
	case "prefix", "substring", "regex":
		return nil
	case "exact":
		args = args[1:]
	}
	return []Served{{Zone: dnszone.Normalize(args[1]), Name: true}}
}

// isNetwork says whether a zone is given as the network whose reverse zone it is.
func isNetwork(s string) bool {
	_, err := netip.ParsePrefix(s)
	return err == nil
}

func isDomain(s string) bool {
	if s == "" {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

// zoneAndPort parses the key of a server block, such as "dns://example.org:1053", ".:53" or "example.org.". The
// root zone is "".
func zoneAndPort(key string) (zone, port string) {
	if _, rest, ok := strings.Cut(key, "://"); ok {
		key = rest
	}
	zone, port = key, "53"
	if i := strings.LastIndexByte(key, ':'); i >= 0 && isPort(key[i+1:]) {
		zone, port = key[:i], key[i+1:]
	}
	return dnszone.Normalize(zone), port
}

func isPort(s string) bool {
	return s != "" && len(s) <= 5 && strings.Trim(s, "0123456789") == ""
}

// HasBlock says whether a Corefile has a server block for exactly this domain.
func HasBlock(corefile, domain string) bool {
	served, err := ServedBy(corefile)
	return err == nil && slices.ContainsFunc(served, func(s Served) bool { return s.Block && s.Zone == domain })
}

// SearchedClusterDomain returns the cluster domain that the kubelet wrote into a pod's resolv.conf, "" where it
// wrote none: of a search list it is what follows "svc.".
func SearchedClusterDomain(resolvConf string) string {
	for line := range strings.Lines(resolvConf) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "search" {
			continue
		}
		for _, word := range words[1:] {
			if domain, ok := strings.CutPrefix(dnszone.Normalize(word), "svc."); ok && isDomain(domain) {
				return domain
			}
		}
	}
	return ""
}
