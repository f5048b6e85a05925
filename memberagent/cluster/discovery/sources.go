// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/cni"
)

// gather asks every source in turn, the ones that state most first. Each works with the rights that the cluster
// agent is installed with; the arguments of control plane pods are none, as to read them means to read every pod. A
// source that does not exist here, or may not be read, says nothing; any other error ends the attempt, since half an
// answer would be reported as the whole.
func gather(ctx context.Context, live client.Client) (Hints, error) {
	var h Hints
	var err error
	if h.StatedServices, err = serviceCIDRs(ctx, live); err != nil {
		return h, err
	}
	for _, source := range []func(context.Context, client.Client) (pods, services []netip.Prefix, err error){
		kubeadm, kubeProxy,
	} {
		pods, services, err := source(ctx, live)
		if err != nil {
			return h, err
		}
		if len(h.StatedPods) == 0 {
			h.StatedPods = pods
		}
		if len(h.StatedServices) == 0 {
			h.StatedServices = services
		}
	}
	if len(h.StatedServices) == 0 {
		if h.StatedServices, err = refusedService(ctx, live); err != nil {
			return h, err
		}
	}
	ranges, err := cni.Read(ctx, live)
	for _, text := range ranges.Skipped {
		logr.FromContextOrDiscard(ctx).V(1).Info("an object of the CNI plugin is not read", "object", text)
	}
	h.CNI, h.OnNodes = ranges.Pods, ranges.OnNodes
	return h, err
}

// silent drops the errors of a source that has nothing to say.
func silent(err error) error {
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
		return nil
	}
	return err
}

// serviceCIDRs reads the ServiceCIDR objects, served since Kubernetes 1.33.
func serviceCIDRs(ctx context.Context, live client.Client) ([]netip.Prefix, error) {
	list := &networkingv1.ServiceCIDRList{}
	if err := live.List(ctx, list); silent(err) != nil {
		return nil, fmt.Errorf("list ServiceCIDRs: %w", err)
	}
	var out []netip.Prefix
	for _, c := range list.Items {
		out = append(out, Prefixes(c.Spec.CIDRs)...)
	}
	return out, nil
}

func configMap(ctx context.Context, live client.Client, name string) (map[string]string, error) {
	m := &corev1.ConfigMap{}
	if err := live.Get(ctx, types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: name}, m); silent(err) != nil {
		return nil, fmt.Errorf("get ConfigMap %s: %w", name, err)
	}
	return m.Data, nil
}

// kubeadm keeps what the cluster was made with.
func kubeadm(ctx context.Context, live client.Client) (pods, services []netip.Prefix, err error) {
	m, err := configMap(ctx, live, "kubeadm-config")
	if err != nil {
		return nil, nil, err
	}
	var config struct {
		Networking struct {
			PodSubnet     string `json:"podSubnet"`
			ServiceSubnet string `json:"serviceSubnet"`
		} `json:"networking"`
	}
	if yaml.Unmarshal([]byte(m["ClusterConfiguration"]), &config) != nil {
		return nil, nil, nil //nolint:nilerr // what cannot be read says nothing; the other sources do
	}
	return Prefixes([]string{config.Networking.PodSubnet}), Prefixes([]string{config.Networking.ServiceSubnet}), nil
}

// kubeProxy is told the pods' ranges to know what is cluster traffic.
func kubeProxy(ctx context.Context, live client.Client) (pods, services []netip.Prefix, err error) {
	m, err := configMap(ctx, live, "kube-proxy")
	if err != nil {
		return nil, nil, err
	}
	var config struct {
		ClusterCIDR string `json:"clusterCIDR"`
	}
	if yaml.Unmarshal([]byte(m["config.conf"]), &config) != nil {
		return nil, nil, nil //nolint:nilerr // what cannot be read says nothing; the other sources do
	}
	return Prefixes([]string{config.ClusterCIDR}), nil, nil
}

// validRange is how an API server without ServiceCIDRs words its refusal: "The range of valid IPs is
// 10.96.0.0/12".
var validRange = regexp.MustCompile(`range of valid IPs is ([0-9a-fA-F:.]+/[0-9]+)`)

// refusedService asks for a ClusterIP that no cluster has; the refusal names the range. Nothing is created.
func refusedService(ctx context.Context, live client.Client) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, ip := range []string{"1.1.1.1", "2606:4700:4700::1111"} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "sl-range"}}
		s.Spec.ClusterIP, s.Spec.Ports = ip, []corev1.ServicePort{{Port: 1}}
		err := live.Create(ctx, s, client.DryRunAll)
		if err == nil {
			continue
		}
		if m := validRange.FindStringSubmatch(err.Error()); m != nil {
			out = append(out, Prefixes(m[1:])...)
		}
	}
	return out, nil
}
