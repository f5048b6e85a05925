// SPDX-License-Identifier: Apache-2.0

package clusterdns

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/internal/dnszone"
)

// The object of OpenShift's DNS operator, which makes the Corefile of it. serverName is Sealane's member of
// spec.servers (github.com/openshift/api operator/v1, type DNS).
const (
	operatorName = "default"
	serverName   = "sealane"
)

var operatorKind = schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1", Kind: "DNS"}

// wired by the servers of OpenShift's DNS operator.
type wiredOperator struct{}

// errNoAddressesByOperator is why PTR queries are not forwarded by the operator.
var errNoAddressesByOperator = errors.New("OpenShift's DNS operator takes no reverse zone of the cluster's own")

func (wiredOperator) wire(have client.Object, f Forward) (want client.Object, unforwarded, err error) {
	servers, err := serversOf(have)
	if err != nil {
		return nil, nil, err
	}
	domain, _, _ := unstructured.NestedString(have.(*unstructured.Unstructured).Object, "status", "clusterDomain")
	if domain == "" {
		domain = "cluster.local"
	}
	served := []Served{{Zone: dnszone.Normalize(domain), By: "the cluster domain", Cluster: true}}
	at := len(servers)
	for i, s := range servers {
		name, _, _ := unstructured.NestedString(s, "name")
		if name == serverName {
			at = i
			continue
		}
		zones, _, _ := unstructured.NestedStringSlice(s, "zones")
		upstreams, _, _ := unstructured.NestedStringSlice(s, "forwardPlugin", "upstreams")
		for _, zone := range zones {
			served = append(served, Served{
				Zone: dnszone.Normalize(zone), By: "the server " + name, Block: true, To: upstreams,
			})
		}
	}
	f.Domains, served = f.notByHand(served)
	if err := f.taken(served); err != nil {
		return nil, nil, err
	}
	if len(f.Domains) == 0 {
		want, err := wiredOperator{}.unwire(have)
		return want, nil, err
	}
	if at == len(servers) {
		servers = append(servers, map[string]any{"name": serverName})
	}
	// What an administrator adds to it, such as a policy, stays.
	if err := unstructured.SetNestedStringSlice(servers[at], f.Domains, "zones"); err != nil {
		return nil, nil, fmt.Errorf("%w: server %s: %w", ErrInvalidCorefile, serverName, err)
	}
	if err := unstructured.SetNestedStringSlice(servers[at], []string{f.To.String()}, "forwardPlugin",
		"upstreams"); err != nil {
		return nil, nil, fmt.Errorf("%w: server %s: %w", ErrInvalidCorefile, serverName, err)
	}
	return withServers(have, servers), errNoAddressesByOperator, nil
}

func (wiredOperator) unwire(have client.Object) (client.Object, error) {
	servers, err := serversOf(have)
	if err != nil {
		return nil, err
	}
	left := slices.DeleteFunc(slices.Clone(servers), func(s map[string]any) bool { return s["name"] == serverName })
	if len(left) == len(servers) {
		return have, nil
	}
	return withServers(have, left), nil
}

func (wiredOperator) byHand(_ client.Object, f Forward) string {
	text := "to spec.servers:\n- name: " + serverName + "\n  zones:\n"
	for _, domain := range f.Domains {
		text += "  - " + domain + "\n"
	}
	return text + fmt.Sprintf("  forwardPlugin:\n    upstreams: [%q]\n", f.To)
}

// serversOf the operator's object, as copies.
func serversOf(o client.Object) ([]map[string]any, error) {
	list, _, err := unstructured.NestedSlice(o.(*unstructured.Unstructured).Object, "spec", "servers")
	if err != nil {
		return nil, fmt.Errorf("%w: spec.servers: %w", ErrInvalidCorefile, err)
	}
	out := make([]map[string]any, 0, len(list))
	for i := range list {
		server, ok := list[i].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%w: spec.servers[%d] is no object", ErrInvalidCorefile, i)
		}
		out = append(out, server)
	}
	return out, nil
}

// withServers returns a copy of the operator's object with these servers; without any, there is no such field.
func withServers(o client.Object, servers []map[string]any) client.Object {
	out := o.DeepCopyObject().(*unstructured.Unstructured)
	if len(servers) == 0 {
		unstructured.RemoveNestedField(out.Object, "spec", "servers")
		return out
	}
	list := make([]any, 0, len(servers))
	for _, s := range servers {
		list = append(list, s)
	}
	spec, _ := out.Object["spec"].(map[string]any)
	if spec == nil {
		spec = map[string]any{}
	}
	spec["servers"] = list
	out.Object["spec"] = spec
	return out
}

// findOperator adds the operator's object; found is false where the cluster has none.
func (f *Found) findOperator(ctx context.Context, c client.Reader) (found bool, err error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(operatorKind)
	o.SetName(operatorName)
	err = c.Get(ctx, client.ObjectKeyFromObject(o), o)
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsForbidden(err):
		f.denied = append(f.denied, "dnses.operator.openshift.io "+operatorName)
		return true, nil
	case err != nil:
		return false, fmt.Errorf("get dnses.operator.openshift.io %s: %w", operatorName, err)
	}
	f.seen = append(f.seen, o)
	if f.Service == "" {
		f.Service = "openshift-dns/dns-default"
	}
	f.add(Target{driver: wiredOperator{}, What: "dnses.operator.openshift.io " + operatorName, Have: o})
	return true, nil
}
