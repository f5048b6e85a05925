// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane"
	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/fleet"
	"github.com/sealane-io/sealane/internal/apiserver"
)

// member is an API server with the namespaces that services are imported into, and no other services than Sealane's.
type member struct {
	client.Client
	api  *apiserver.Server
	http rest.Interface
}

// account of the cluster agent.
const account = "sealane-cluster-agent"

func newMember(ctx context.Context, size fleet.Size) (*member, error) {
	crds, err := apiserver.CRDs() //nolint:contextcheck // it asks the go command
	if err != nil {
		return nil, err
	}
	api, err := apiserver.Launch(ctx, crds)
	if err != nil {
		return nil, err
	}
	m := &member{api: api}
	if err := m.populate(ctx, size); err != nil {
		api.Stop()
		return nil, err
	}
	return m, nil
}

func (m *member) populate(ctx context.Context, size fleet.Size) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		mcs.Install(scheme)); err != nil {
		return fmt.Errorf("register kinds: %w", err)
	}
	config := rest.CopyConfig(m.api.Config)
	config.QPS = -1 // what is measured is the agent
	var err error
	if m.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	config.NegotiatedSerializer = clientgoscheme.Codecs
	if m.http, err = rest.UnversionedRESTClientFor(config); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "sealane-dns"},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"},
			Spec: corev1.NodeSpec{PodCIDR: "10.255.0.0/24", PodCIDRs: []string{"10.255.0.0/24"}}},
	}
	for _, name := range size.NamespacesOf() {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	permissions, err := permissions()
	if err != nil {
		return err
	}
	for _, o := range append(objects, permissions...) {
		if err := m.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// permissions are those that the agent is installed with, and no more.
func permissions() ([]client.Object, error) {
	var out []client.Object
	for _, file := range []string{"cluster-agent.yaml", "admission.yaml", "metrics-reader.yaml"} {
		text, err := fs.ReadFile(sealane.Artifacts, "artifacts/deploy/"+file)
		if err != nil {
			return nil, fmt.Errorf("read the agent's rights: %w", err)
		}
		for _, document := range strings.Split(string(text), "\n---\n") {
			o := new(unstructured.Unstructured)
			if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
				return nil, fmt.Errorf("read the agent's rights in %s: %w", file, err)
			}
			group := o.GroupVersionKind().Group
			if group == rbacv1.GroupName || group == admissionregistrationv1.GroupName {
				out = append(out, o)
			}
		}
	}
	return out, nil
}

// start starts the agent, with its log and kubeconfig in a directory of its own.
func (m *member) start(ctx context.Context, program, dir string, profiled bool) (*process, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["member"] = &clientcmdapi.Cluster{Server: m.api.Config.Host, InsecureSkipTLSVerify: true}
	config.AuthInfos[account] = &clientcmdapi.AuthInfo{Token: m.api.Config.BearerToken,
		Impersonate:       "system:serviceaccount:" + v1alpha1.Namespace + ":" + account,
		ImpersonateGroups: []string{"system:serviceaccounts", "system:authenticated"}}
	config.Contexts["member"] = &clientcmdapi.Context{Cluster: "member", AuthInfo: account}
	config.CurrentContext = "member"
	path := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return nil, fmt.Errorf("write the agent's kubeconfig: %w", err)
	}
	args := []string{"cluster", "--kubeconfig=" + path, "--metrics-bind-address=0", "--health-probe-bind-address=0"}
	if profiled {
		args = append(args, "--profiling-bind-address="+profilesAt)
	}
	return launch(exec.CommandContext(context.WithoutCancel(ctx), program, args...), filepath.Join(dir, "agent.log"))
}

// counts are how many objects of imports there are.
type counts struct{ imports, services, slices int64 }

func (m *member) counts(ctx context.Context) (counts, error) {
	var out counts
	for list, to := range map[*metav1.PartialObjectMetadataList]*int64{
		kind("multicluster.x-k8s.io", "v1beta1", "ServiceImportList"): &out.imports,
		kind("", "v1", "ServiceList"):                                 &out.services,
		kind("discovery.k8s.io", "v1", "EndpointSliceList"):           &out.slices,
	} {
		if err := m.List(ctx, list, client.Limit(1)); err != nil {
			return out, fmt.Errorf("count objects: %w", err)
		}
		if *to = int64(len(list.Items)); list.RemainingItemCount != nil {
			*to += *list.RemainingItemCount
		}
	}
	return out, nil
}

// write names the requests that change one kind of object.
type write struct{ resource, verb string }

// writes are how many requests that change something the API server has answered, but for Leases.
func (m *member) writes(ctx context.Context) (map[write]float64, error) {
	text, err := m.http.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	out := map[write]float64{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range metric.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		w := write{labels["resource"], labels["verb"]}
		if labels["subresource"] != "" {
			w.resource += "/" + labels["subresource"]
		}
		switch w.verb {
		case "POST", "PUT", "PATCH", "DELETE":
			if w.resource != "leases" {
				out[w] += metric.GetCounter().GetValue()
			}
		}
	}
	return out, nil
}
