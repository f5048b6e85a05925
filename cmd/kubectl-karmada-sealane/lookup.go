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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// clusterDNS is the Service in kube-system that every cluster's DNS has, whatever it is made of.
	clusterDNS = "kube-dns"
	// versionName with a domain before it is answered by Sealane's DNS alone.
	versionName = "dns-version."
)

// lookUp asks each member's own cluster DNS for a name that only Sealane's DNS knows, until it answers.
// A member that cannot be asked from here vouches for itself, by the condition that was waited for.
func (o *options) lookUp(ctx context.Context, karmada *api, p *progress, set *v1alpha1.ClusterSet, members []v1alpha1.Member) error {
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
				remedy:   fmt.Sprintf("kubectl --context %s -n kube-system logs -l k8s-app=kube-dns; kubectl --context %s -n %s logs deploy/sealane-dns", m.Name, m.Name, v1alpha1.Namespace),
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
		ctx, cancel := context.WithTimeout(ctx, defaultMemberTimeout)
		defer cancel()
		answer, last = a.askClusterDNS(ctx, name)
		return last == nil, nil
	})
	if err != nil {
		return "", fmt.Errorf("%w (%w)", last, err)
	}
	return answer, nil
}

// askClusterDNS sends one TXT question over TCP to a pod of the cluster's DNS, through the API server.
func (a *api) askClusterDNS(ctx context.Context, name string) (string, error) {
	pod, port, err := a.dnsPod(ctx)
	if err != nil {
		return "", err
	}
	address, stop, err := forward(ctx, a.config, pod, port)
	if err != nil {
		return "", fmt.Errorf("forward a port to pod %s: %w", pod, err)
	}
	defer stop()
	question := new(dns.Msg).SetQuestion(name, dns.TypeTXT)
	exchange := &dns.Client{Net: "tcp", Timeout: 2 * time.Second}
	reply, _, err := exchange.ExchangeContext(ctx, question, address)
	if err != nil {
		return "", fmt.Errorf("ask pod %s: %w", pod, err)
	}
	for _, record := range reply.Answer {
		if txt, ok := record.(*dns.TXT); ok {
			return strings.Join(txt.Txt, ""), nil
		}
	}
	return "", fmt.Errorf("pod %s answers %s without a TXT record", pod, dns.RcodeToString[reply.Rcode])
}

// dnsPod finds a ready pod behind the cluster's DNS Service and the TCP port it listens on.
func (a *api) dnsPod(ctx context.Context) (pod client.ObjectKey, port int32, err error) {
	var slices discoveryv1.EndpointSliceList
	err = a.List(ctx, &slices, client.InNamespace("kube-system"), client.MatchingLabels{discoveryv1.LabelServiceName: clusterDNS})
	if err != nil {
		return pod, 0, fmt.Errorf("list endpoints of the cluster DNS: %w", err)
	}
	for i := range slices.Items {
		s := &slices.Items[i]
		for _, p := range s.Ports {
			if p.Port == nil || p.Protocol == nil || *p.Protocol != corev1.ProtocolTCP || p.Name == nil || !strings.HasPrefix(*p.Name, "dns") {
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
	return pod, 0, fmt.Errorf("the Service kube-system/%s has no ready pod with a TCP port named dns…", clusterDNS)
}

// forward opens a local port to a pod's; stop closes it.
func forward(ctx context.Context, config *rest.Config, pod client.ObjectKey, port int32) (address string, stop func(), err error) {
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
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:" + strconv.Itoa(int(port))}, quit, ready, io.Discard, io.Discard)
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
