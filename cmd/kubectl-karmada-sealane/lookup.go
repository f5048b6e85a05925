// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/clusterdns"
)

// versionName with a domain after it is answered by Sealane's DNS alone.
const versionName = "dns-version."

// clusterDNS is the Service that pods ask, by its usual name where none is found.
func (a *api) clusterDNS(ctx context.Context) (client.ObjectKey, error) {
	found, err := clusterdns.Wiring{}.Find(ctx, a)
	if err != nil {
		return client.ObjectKey{}, fmt.Errorf("look for the cluster's DNS: %w", err)
	}
	return serviceOf(found), nil
}

func serviceOf(found *clusterdns.Found) client.ObjectKey {
	if namespace, name, ok := strings.Cut(found.Service, "/"); ok {
		return client.ObjectKey{Namespace: namespace, Name: name}
	}
	return client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kube-dns"}
}

// lookUp asks each member's own cluster DNS for a name that only Sealane's DNS knows, until it answers.
// A member that cannot be asked from here is taken as its condition says, which was waited for.
func (o *options) lookUp(ctx context.Context, karmada *api, p *progress, set *v1alpha1.ClusterSet,
	members []v1alpha1.Member) error {
	if len(set.Spec.DNS.Domains) == 0 {
		return nil
	}
	name := dns.Fqdn(versionName + set.Spec.DNS.Domains[0])
	for i := range members {
		m := &members[i]
		member, err := o.reach(ctx, karmada, m)
		if err != nil {
			p.warn("%s: its cluster DNS was not asked from here, only by its agent: %v", m.Name, err)
			continue
		}
		answer, err := member.resolve(ctx, name)
		if err != nil {
			return &finding{
				expected: fmt.Sprintf("the cluster DNS of %s to answer TXT %s", m.Name, name),
				found:    err.Error(),
				remedy: fmt.Sprintf("kubectl --context %s -n kube-system logs -l k8s-app=kube-dns; kubectl --context %s -n %s "+
					"logs deploy/sealane-dns", m.Name, m.Name, v1alpha1.Namespace),
			}
		}
		p.say("%s: its cluster DNS answers %s %q", m.Name, name, answer)
	}
	return nil
}

func (o *options) reach(ctx context.Context, karmada *api, m *v1alpha1.Member) (*api, error) {
	ctx, cancel := context.WithTimeout(ctx, defaultMemberTimeout)
	defer cancel()
	return o.member(ctx, karmada, m)
}

// resolve repeats the question until it is answered or ctx ends, and then tells the last error.
func (a *api) resolve(ctx context.Context, name string) (string, error) {
	var answer string
	last := errors.New("not asked")
	err := until(ctx, func(ctx context.Context) (bool, error) {
		attempt, cancel := context.WithTimeout(ctx, defaultMemberTimeout)
		defer cancel()
		text, err := a.askClusterDNS(attempt, name)
		if ctx.Err() == nil || err == nil { // one that the end of all cut short says nothing of the DNS
			answer, last = text, err
		}
		return err == nil, nil
	})
	if err != nil {
		return "", fmt.Errorf("%w (%w)", last, err)
	}
	return answer, nil
}

// askClusterDNS asks the cluster's DNS for a text.
func (a *api) askClusterDNS(ctx context.Context, name string) (string, error) {
	service, err := a.clusterDNS(ctx)
	if err != nil {
		return "", err
	}
	replies, err := a.ask(ctx, service, name, dns.TypeTXT)
	if err != nil {
		return "", err
	}
	for _, record := range replies[0].Answer {
		if txt, ok := record.(*dns.TXT); ok {
			return strings.Join(txt.Txt, ""), nil
		}
	}
	return "", fmt.Errorf("it answers %s without a TXT record", dns.RcodeToString[replies[0].Rcode])
}

// unasked is why no question could be sent, which says nothing about the answer.
type unasked struct{ error }

func (u *unasked) Unwrap() error { return u.error }

// ask sends questions over TCP to a pod behind a DNS Service, through the API server. There is one reply per
// type, in their order.
func (a *api) ask(ctx context.Context, service client.ObjectKey, name string, types ...uint16) ([]*dns.Msg, error) {
	pod, port, err := a.dnsPod(ctx, service)
	if err != nil {
		return nil, &unasked{err}
	}
	address, stop, err := forward(ctx, a.config, pod, port)
	if err != nil {
		return nil, &unasked{fmt.Errorf("forward a port to pod %s: %w", pod, err)}
	}
	defer stop()
	exchange := &dns.Client{Net: "tcp", Timeout: 2 * time.Second}
	replies := make([]*dns.Msg, 0, len(types))
	for _, kind := range types {
		reply, _, err := exchange.ExchangeContext(ctx, new(dns.Msg).SetQuestion(name, kind), address)
		if err != nil {
			return nil, fmt.Errorf("ask pod %s: %w", pod, err)
		}
		replies = append(replies, reply)
	}
	return replies, nil
}

// dnsPod finds a ready pod behind a DNS Service and the TCP port it listens on.
func (a *api) dnsPod(ctx context.Context, service client.ObjectKey) (pod client.ObjectKey, port int32, err error) {
	var slices discoveryv1.EndpointSliceList
	err = a.List(ctx, &slices, client.InNamespace(service.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: service.Name})
	if err != nil {
		return pod, 0, fmt.Errorf("list endpoints of Service %s: %w", service, err)
	}
	for i := range slices.Items {
		s := &slices.Items[i]
		for _, p := range s.Ports {
			if p.Port == nil || p.Protocol == nil || *p.Protocol != corev1.ProtocolTCP || p.Name == nil ||
				!strings.HasPrefix(*p.Name, "dns") {
				continue
			}
			for _, e := range s.Endpoints {
				ready := e.Conditions.Ready == nil || *e.Conditions.Ready
				if ready && e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
					return client.ObjectKey{Namespace: e.TargetRef.Namespace, Name: e.TargetRef.Name}, *p.Port, nil
				}
			}
		}
	}
	return pod, 0, fmt.Errorf("the Service %s has no ready pod with a TCP port named dns…", service)
}

// forward opens a local port to a pod's; stop closes it.
func forward(ctx context.Context, config *rest.Config, pod client.ObjectKey, port int32) (
	address string, stop func(), err error,
) {
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return "", nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return "", nil, err
	}
	url := base.JoinPath("api", "v1", "namespaces", pod.Namespace, "pods", pod.Name, "portforward")
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	quit, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:" + strconv.Itoa(int(port))},
		quit, ready, io.Discard, io.Discard)
	if err != nil {
		return "", nil, err
	}
	done := make(chan error, 1)
	go func() { done <- forwarder.ForwardPorts() }()
	stop = func() { close(quit); <-done } //nolint:errcheck // it ends because it is told to
	select {
	case <-ready:
	case err := <-done:
		return "", nil, err
	case <-ctx.Done():
		stop()
		return "", nil, ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		stop()
		return "", nil, err
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))), stop, nil
}
