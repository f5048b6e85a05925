// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Place is an end of the way as it was asked for: a pod, a node or an address of a cluster.
type Place struct {
	Cluster string
	// Namespace and Pod, or Node, or Addr.
	Namespace, Pod string
	Node           string
	Addr           netip.Addr
}

// Shapes of a Place, for people.
const Shapes = "CLUSTER/NAMESPACE/POD, CLUSTER/NODE or CLUSTER/ADDRESS"

// ParsePlace reads an end of the way. The error says what is wrong with it.
func ParsePlace(text string) (Place, error) {
	parts := strings.Split(text, "/")
	p := Place{Cluster: parts[0]}
	if len(validation.IsDNS1123Label(p.Cluster)) > 0 {
		return Place{}, fmt.Errorf("%q is no name of a cluster", p.Cluster)
	}
	for _, part := range parts[1:] {
		if part == "" {
			return Place{}, fmt.Errorf("%q has an empty part", text)
		}
	}
	switch len(parts) {
	case 2:
		if a, err := netip.ParseAddr(parts[1]); err == nil && a.Zone() == "" {
			p.Addr = a.Unmap()
			return p, nil
		}
		if len(validation.IsDNS1123Subdomain(parts[1])) > 0 {
			return Place{}, fmt.Errorf("%q is neither an address nor a name of a node", parts[1])
		}
		p.Node = parts[1]
		return p, nil
	case 3:
		if len(validation.IsDNS1123Label(parts[1])) > 0 || len(validation.IsDNS1123Subdomain(parts[2])) > 0 {
			return Place{}, fmt.Errorf("%q is no name of a namespace and a pod", parts[1]+"/"+parts[2])
		}
		p.Namespace, p.Pod = parts[1], parts[2]
		return p, nil
	}
	return Place{}, fmt.Errorf("%q has %d parts", text, len(parts))
}

// Destination as it was asked for: a Place, an address or a name.
type Destination struct {
	Place *Place
	Addr  netip.Addr
	Name  string
	Port  Port
}

// ParseDestination reads "<place>", "<address>" or "<name>", with ":<port>" or ":<port>/<protocol>" behind it. An IPv6
// address with a port is in brackets.
func ParseDestination(text string) (Destination, error) {
	d := Destination{Port: Port{Protocol: corev1.ProtocolTCP}}
	host := text
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil && a.Zone() == "" {
		d.Addr = a.Unmap()
		return d, nil
	}
	if at := strings.LastIndexByte(text, ':'); at >= 0 && !isPlaceAddress(text) {
		var err error
		if d.Port, err = parsePort(text[at+1:]); err != nil {
			return Destination{}, err
		}
		host = text[:at]
	}
	switch a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")); {
	case host == "":
		return Destination{}, fmt.Errorf("%q names nothing before the port", text)
	case err == nil && a.Zone() == "":
		d.Addr = a.Unmap()
	case strings.Contains(host, "/"):
		place, err := ParsePlace(strings.NewReplacer("[", "", "]", "").Replace(host))
		if err != nil {
			return Destination{}, err
		}
		d.Place = &place
	default:
		d.Name = host
	}
	return d, nil
}

// isPlaceAddress says whether a text is "<cluster>/<IPv6 address>" without a port.
func isPlaceAddress(text string) bool {
	_, rest, found := strings.Cut(text, "/")
	a, err := netip.ParseAddr(rest)
	return found && err == nil && a.Is6()
}

func parsePort(text string) (Port, error) {
	number, protocol, found := strings.Cut(text, "/")
	p := Port{Protocol: corev1.ProtocolTCP}
	if found {
		switch p.Protocol = corev1.Protocol(strings.ToUpper(protocol)); p.Protocol {
		case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		default:
			return Port{}, fmt.Errorf("protocol %q is none of tcp, udp and sctp", protocol)
		}
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 {
		return Port{}, fmt.Errorf("port %q is no number from 1 to 65535", number)
	}
	p.Number = uint16(n)
	return p, nil
}

// String is "80/tcp".
func (p Port) String() string {
	if p.Number == 0 {
		return strings.ToLower(string(p.Protocol))
	}
	return fmt.Sprintf("%d/%s", p.Number, strings.ToLower(string(p.Protocol)))
}
