// SPDX-License-Identifier: Apache-2.0

// Package dnspath follows a name of the clusterset along everything that must hold for a pod to resolve it
// and to reach what it leads to, and says where the path breaks. It is pure: what is to be known is gathered
// beforehand, as Facts.
package dnspath

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Kind of a name, by its shape.
type Kind string

// The kinds of names.
const (
	// Version is dns-version.<domain>.
	Version Kind = "version"
	// Service is <service>.<namespace>.svc.<domain>.
	Service Kind = "service"
	// Cluster is <cluster>.<service>.<namespace>.svc.<domain>.
	Cluster Kind = "cluster"
	// Host is <host>.<cluster>.<service>.<namespace>.svc.<domain>.
	Host Kind = "host"
)

// Name is a name of the clusterset in its parts.
type Name struct {
	Kind Kind
	// FQDN in lower case, without the trailing dot.
	FQDN   string
	Domain string
	// Namespace, Service, Cluster and Host as far as the kind has them.
	Namespace, Service, Cluster, Host string
	// Port and Protocol, without underscores, of a name that asks for SRV records; else empty.
	Port, Protocol string
}

const (
	maxName = 253
	// clusterDomain is the domain of names within one cluster, as nearly every cluster has it.
	clusterDomain = "cluster.local"
	versionLabel  = "dns-version"
	shapes        = "<service>.<namespace>.svc.DOMAIN, with <cluster>. or <host>.<cluster>. before it, or " +
		"_<port>._<protocol>. for SRV records"
)

// Parse reads a name. One that is in none of the domains is completed: SERVICE is in the namespace given,
// SERVICE.NAMESPACE and ….svc in the first domain. What is wrong with a name comes back as a broken Step.
func Parse(text, namespace string, domains []string) (Name, *Step) {
	bad := func(found, remedy string) (Name, *Step) {
		expected := "a name of the clusterset: " + strings.ReplaceAll(shapes, "DOMAIN", domains[0])
		return Name{}, &Step{Name: stepName, Verdict: Broken, Expected: expected, Found: found, Remedy: remedy}
	}
	if len(domains) == 0 {
		return Name{}, &Step{Name: stepName, Verdict: Broken, Expected: "a ClusterSet with a domain", Found: "none",
			Remedy: "see kubectl get clustersets on the Karmada API"}
	}
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	domain := longest(name, domains)
	switch {
	case name == "":
		return bad("nothing", "give a name")
	case slices.Contains(domains, name):
		return bad(fmt.Sprintf("%q is the domain itself", text), "put a service and its namespace before it")
	case domain == "" && (name == clusterDomain || strings.HasSuffix(name, "."+clusterDomain)):
		return bad(fmt.Sprintf("%q is a name within one cluster, which Sealane has no part in", text),
			"ask for "+strings.TrimSuffix(name, clusterDomain)+domains[0])
	case domain == "":
		completed, ok := complete(name, namespace)
		if !ok {
			return bad(fmt.Sprintf("%q is in none of the domains %s", text, strings.Join(domains, ", ")),
				"write the name in full")
		}
		domain = domains[0]
		name = completed + "." + domain
	}
	if len(name) > maxName {
		return bad(fmt.Sprintf("it has %d octets, more than %d", len(name), maxName), "shorten it")
	}
	n := Name{FQDN: name, Domain: domain}
	if found, remedy := n.split(strings.TrimSuffix(name, "."+domain)); found != "" {
		return bad(found, remedy)
	}
	return n, nil
}

// longest is the longest domain that the name is in, "" if it is in none.
func longest(name string, domains []string) string {
	out := ""
	for _, d := range domains {
		if (name == d || strings.HasSuffix(name, "."+d)) && len(d) > len(out) {
			out = d
		}
	}
	return out
}

// complete makes a short name a relative one: "cart", "cart.shop" and "c2.cart.shop.svc".
func complete(name, namespace string) (string, bool) {
	labels := strings.Split(name, ".")
	switch last := labels[len(labels)-1]; {
	case last == "svc" && len(labels) > 2, name == versionLabel:
		return name, true
	case len(labels) == 1:
		return name + "." + namespace + ".svc", true
	case len(labels) == 2:
		return name + ".svc", true
	}
	return "", false
}

// split takes what stands before the domain apart, and says what was found wrong and what to do.
func (n *Name) split(relative string) (found, remedy string) {
	if relative == versionLabel {
		n.Kind = Version
		return "", ""
	}
	labels := strings.Split(relative, ".")
	if labels[len(labels)-1] != "svc" {
		return fmt.Sprintf("there is no svc before %s", n.Domain), "perhaps " + relative + ".svc." + n.Domain + " is meant"
	}
	labels = labels[:len(labels)-1]
	if labels, found, remedy = n.takePort(labels); found != "" {
		return found, remedy
	}
	for _, label := range labels {
		if problems := validation.IsDNS1123Label(label); len(problems) > 0 {
			return fmt.Sprintf("%q is no label of a name: %s", label, problems[0]),
				"check the name for dots too many and for what is no letter, digit or -"
		}
	}
	slices.Reverse(labels)
	parts := []*string{&n.Namespace, &n.Service, &n.Cluster, &n.Host}
	if len(labels) < 2 {
		return "it names a namespace and no service", "put the service before it"
	}
	if len(labels) > len(parts) {
		return fmt.Sprintf("%d labels before svc are more than host, cluster, service and namespace", len(labels)),
			"check the name"
	}
	for i, label := range labels {
		*parts[i] = label
	}
	n.Kind = []Kind{Service, Cluster, Host}[len(labels)-2]
	if n.Kind == Host && n.Protocol != "" {
		return "a port of a single host has no SRV records", "ask for those of the service or of one of its clusters"
	}
	return "", ""
}

// takePort takes _<port>._<protocol> off the front.
func (n *Name) takePort(labels []string) (rest []string, found, remedy string) {
	if len(labels) == 0 || !strings.HasPrefix(labels[0], "_") {
		return labels, "", ""
	}
	if len(labels) < 2 || !strings.HasPrefix(labels[1], "_") {
		return nil, fmt.Sprintf("%q is a port without a protocol after it", labels[0]), "write _<port>._tcp or _<port>._udp"
	}
	n.Port, n.Protocol = labels[0][1:], labels[1][1:]
	if !slices.Contains([]string{"tcp", "udp", "sctp"}, n.Protocol) {
		return nil, fmt.Sprintf("%q is no protocol", labels[1]), "write _tcp, _udp or _sctp after the port"
	}
	return labels[2:], "", ""
}

// describe says what the name stands for.
func (n *Name) describe() string {
	if n.Kind == Version {
		return n.FQDN + " is the version of the schema of " + n.Domain
	}
	text := "service " + n.Service + " in namespace " + n.Namespace
	if n.Cluster != "" {
		text += ", of cluster " + n.Cluster
	}
	if n.Host != "" {
		text += ", host " + n.Host
	}
	if n.Protocol != "" {
		text += ", port " + n.Port + "/" + n.Protocol
	}
	return n.FQDN + " is " + text
}
