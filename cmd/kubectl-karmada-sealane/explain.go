// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/dnspath"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/explain"
)

// explaining is a command line of explain.
type explaining struct {
	*options
	scope
	output string
	from   string
	live   bool
}

func newExplain(o *options) *cobra.Command {
	e := &explaining{options: o}
	cmd := &cobra.Command{
		Use:   "explain SOURCE DESTINATION",
		Short: "Follow a packet from a pod or node to a service, a pod or an address, and its answer back",
		Long: `Follow a packet from a pod or node to a service, a pod or an address, and its answer back, hop by hop: what the
name is answered with, which clusters serve and why, what kube-proxy makes of it, the route, the overlay to the
gateway, the cable, what the other cluster's guard and gateway do with it, and where it is delivered. Each step is ok,
warn or fail. At a step that fails, where the packet is lost, the command says what was expected, what was found and
what to do, and it ends there. The exit code is 0 if the packet arrives and its answer too, and 1 otherwise.

SOURCE is ` + explain.Shapes + `.
DESTINATION is the same, a name of the clusterset or an address, with :PORT or :PORT/PROTOCOL behind it (default: the
first port of the service; tcp). A short name is completed as in diagnose dns, with the source's namespace. Of several
backends, one in each cluster is followed.

Without --live no packet is sent. The way follows from the objects that members hold, by the code that the node agents
and Sealane's DNS run themselves. What no object tells is not seen: a NetworkPolicy, a firewall that drops other
packets than probes, a process that does not listen. Members are asked as in show.

With --live a packet is sent too, and followed: the node agents on the way watch it, for half a minute at most, and the
command says on which devices of which node it was seen, where last, and which rule of nftables, of anybody's, dropped
it, or its answer. It is a connection from the source's own network namespace, with 8000 bytes of line feeds once it is
made, or two datagrams. From a pod it is sent by an ephemeral container of the node agents' image, without any rights,
which ends within seconds, and which Kubernetes keeps listed in the pod; from a node by its agent. That takes the
rights to patch pods/ephemeralcontainers and to get pods/log of the source, and to execute in the node agents' pods, as
gather. Nothing is left on the nodes, also if the command is interrupted.

With --from, the way is explained by what gather has written to a file, and nobody is asked. As a file has no pods of
workloads, name a pod by its address there.`,
		Example: `  ` + o.invocation + ` explain c1/shop/web-0 cart.shop.svc.clusterset.local:80
  ` + o.invocation + ` explain c1/shop/web-0 c2/shop/cart-5d8f6-x2k4j:8080
  ` + o.invocation + ` explain c1/worker-1 whereami.sample:53/udp
  ` + o.invocation + ` explain c1/shop/web-0 cart.shop:80 --live
  ` + o.invocation + ` explain c1/10.8.1.5 10.9.1.7 --from sealane-gather.tgz -o json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return e.run(cmd.Context(), args[0], args[1]) },
	}
	f := cmd.Flags()
	f.StringVarP(&e.output, "output", "o", outputTable, "output format: table, json or yaml")
	f.DurationVar(&e.memberTimeout, "member-timeout", defaultMemberTimeout, "how long to wait for each member")
	f.StringVar(&e.from, "from", "",
		"explain by what gather has written to this file, as of the time it was taken, and ask nobody")
	f.BoolVar(&e.live, "live", false, "send a packet on the way, too, and have the node agents there watch it")
	return cmd
}

func (e *explaining) run(ctx context.Context, from, to string) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	if err := checkOutput(e.output); err != nil {
		return err
	}
	source, destination, err := ends(from, to)
	if err != nil {
		return err
	}
	if e.live && e.from != "" {
		return &finding{expected: "either --live or --from", found: "both: a file has no nodes to send a packet between",
			remedy: "leave one of them out"}
	}
	all := &diagnoses{options: e.options, scope: e.scope, from: e.from, host: hostCluster{namespace: controllerName}}
	s, err := all.take(ctx)
	if err != nil {
		return err
	}
	explained := s.explain
	if e.live {
		explained = s.explainLive
	}
	out, err := explained(ctx, source, destination)
	if err != nil {
		return err
	}
	if e.output == outputJSON || e.output == outputYAML {
		if err := write(e.Out, e.output, table{subject: "explain", rows: out}); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(e.Out, "From %s to %s:\n", out.From, out.To)
		out.Print(e.Out)
	}
	return out.Err()
}

// ends reads the two ends of a packet's way, as the arguments of explain.
func ends(from, to string) (explain.Place, explain.Destination, error) {
	source, err := explain.ParsePlace(from)
	if err != nil {
		return source, explain.Destination{}, &finding{expected: "a source: " + explain.Shapes, found: err.Error(),
			remedy: "such as c1/shop/web-0, c1/worker-1 or c1/10.8.1.5"}
	}
	destination, err := explain.ParseDestination(to)
	if err != nil {
		return source, destination, &finding{
			expected: "a destination: a name, an address, or " + explain.Shapes + ", and perhaps :PORT",
			found:    err.Error(), remedy: "such as cart.shop.svc.clusterset.local:80, 10.9.1.7 or c2/shop/cart-0:8080"}
	}
	return source, destination, nil
}

// explain follows a packet through the snapshot. Only pods that are named are asked for, where there is an API server.
func (s *snapshot) explain(ctx context.Context, from explain.Place, to explain.Destination) (*explain.Explanation,
	error) {
	f := s.fleet()
	request, err := s.request(ctx, f, from, to)
	if err != nil {
		return nil, err
	}
	out := explain.Explain(s.dataPlane(f), *request)
	return &out, nil
}

// explainLive is the same, and sends a packet.
func (s *snapshot) explainLive(ctx context.Context, from explain.Place, to explain.Destination) (*explain.Explanation,
	error) {
	f := s.fleet()
	request, err := s.request(ctx, f, from, to)
	if err != nil {
		return nil, err
	}
	return s.live(ctx, from, *request, f)
}

// request looks up the ends of a packet's way.
func (s *snapshot) request(ctx context.Context, f *fleet, from explain.Place, to explain.Destination) (*explain.Request,
	error) {
	if err := f.known([]string{from.Cluster}, s.invocation); err != nil {
		return nil, err
	}
	source, err := s.endpoint(ctx, from)
	if err != nil {
		return nil, err
	}
	request := explain.Request{From: *source, Address: to.Addr, Port: to.Port}
	switch {
	case to.Place != nil:
		if err := f.known([]string{to.Place.Cluster}, s.invocation); err != nil {
			return nil, err
		}
		if request.To, err = s.endpoint(ctx, *to.Place); err != nil {
			return nil, err
		}
	case to.Name != "":
		name, broken := dnspath.Parse(to.Name, from.Namespace, f.domains())
		if broken != nil {
			return nil, &finding{expected: broken.Expected, found: broken.Found, remedy: broken.Remedy}
		}
		if name.Kind == dnspath.Version {
			return nil, &finding{expected: "a name that packets can be sent to",
				found:  name.FQDN + " has a text, and no address",
				remedy: "name a service, or see " + s.invocation + " diagnose dns " + name.FQDN}
		}
		if request.Name, err = s.nameFacts(ctx, f, from.Cluster, name); err != nil {
			return nil, err
		}
	}
	return &request, nil
}

// endpoint resolves a pod, a node or an address.
func (s *snapshot) endpoint(ctx context.Context, at explain.Place) (*explain.Endpoint, error) {
	switch {
	case at.Addr.IsValid():
		return &explain.Endpoint{Cluster: at.Cluster, What: at.Addr.String(), Addresses: []netip.Addr{at.Addr}}, nil
	case at.Node != "":
		return &explain.Endpoint{Cluster: at.Cluster, What: "node " + at.Node, Node: at.Node, Host: true}, nil
	}
	what := at.Namespace + "/" + at.Pod
	p := s.member(at.Cluster)
	if p == nil || p.api == nil {
		found := "a file, or a member that could not be asked, has no pods of workloads"
		if p != nil && p.lacks(everything) != "" {
			found = p.lacks(everything)
		}
		return nil, &finding{expected: "to ask " + at.Cluster + " for pod " + what, found: found,
			remedy: "name the pod by its address, as in " + at.Cluster + "/10.8.1.5"}
	}
	var pod corev1.Pod
	found, err := p.api.find(ctx, client.ObjectKey{Namespace: at.Namespace, Name: at.Pod}, &pod)
	if err != nil {
		return nil, err
	}
	if !found || pod.Spec.NodeName == "" {
		text := "there is none"
		if found {
			text = "it is on no node yet: " + string(pod.Status.Phase)
		}
		return nil, &finding{expected: "pod " + what + " in " + at.Cluster, found: text,
			remedy: p.kubectl("-n %s get pods -o wide", at.Namespace)}
	}
	return endpointOf(at.Cluster, &pod), nil
}

// endpointOf is a pod as an end of a way.
func endpointOf(cluster string, pod *corev1.Pod) *explain.Endpoint {
	e := &explain.Endpoint{Cluster: cluster, What: "pod " + pod.Namespace + "/" + pod.Name, Node: pod.Spec.NodeName,
		Host: pod.Spec.HostNetwork}
	for _, ip := range pod.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && !e.Host {
			e.Addresses = append(e.Addresses, a.Unmap())
		}
	}
	return e
}

// nameFacts are those of a name in a member, by the snapshot alone.
func (s *snapshot) nameFacts(ctx context.Context, f *fleet, cluster string, name dnspath.Name) (*dnspath.Facts, error) {
	at := slices.IndexFunc(f.members, func(m fleetMember) bool { return m.Name == cluster })
	p := s.member(cluster)
	facts := &dnspath.Facts{Cluster: cluster, Plugin: s.invocation, Now: f.now, Name: name,
		Answers: dnspath.Answers{Unasked: "nobody is asked"}}
	if at < 0 || p == nil || unreadOf(p) != "" {
		return facts, nil // the explanation says so
	}
	m := &f.members[at]
	facts.Kubectl, facts.Gateways, facts.Namespaces = "kubectl --context "+p.context, m.gateways, m.services.namespaces
	f.tell(facts, m)
	if err := lookAround(ctx, s.reader(p), facts); err != nil {
		return nil, fmt.Errorf("look around in %s: %w", cluster, err)
	}
	// A snapshot has Bundles as Karmada carries them; whether it has applied them is diagnose karmada's.
	facts.Bundle = facts.Wanted
	return facts, nil
}
