// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// startKarmadaAPI starts the API server that Karmada's objects live in.
func (l *Lab) startKarmadaAPI() error {
	return l.procs.Ensure(process{Name: "karmada-apiserver", Argv: append(
		l.apiServerFlags(ContextKarmada, portKarmadaAPI),
		flag("authorization-mode", "Node,RBAC"),
		flag("disable-admission-plugins", "StorageObjectInUseProtection,ServiceAccount"),
		flag("service-cluster-ip-range", "10.96.0.0/12"),
	)})
}

// startKarmada brings Karmada up on its ready API server. The order matters:
// karmada-controller-manager ends when the aggregated API is not served.
func (l *Lab) startKarmada(ctx context.Context) error {
	err := l.procs.Ensure(process{Name: "karmada-kube-controller-manager", Argv: append(
		// As Karmada's own installation does: its garbage collector deletes objects of every kind.
		l.controllerManagerFlags(ContextKarmada, "admin", portKarmadaKCM),
		// Members need no signer, and each signer costs an inotify instance, of which the host has few.
		flag("cluster-signing-cert-file", l.path("pki", ContextKarmada, "ca.crt")),
		flag("cluster-signing-key-file", l.path("pki", ContextKarmada, "ca.key")),
		flag("controllers",
			"namespace,garbagecollector,serviceaccount-token,ttl-after-finished,"+
				"bootstrapsigner,tokencleaner,csrcleaner,csrsigning,clusterrole-aggregation"),
	)})
	if err != nil {
		return err
	}
	if err := l.startAggregated(); err != nil {
		return err
	}
	api, err := l.applier(ContextKarmada)
	if err != nil {
		return err
	}
	if err := l.applyKarmada(ctx, api); err != nil {
		return err
	}
	if err := l.startWebhook(); err != nil {
		return err
	}
	if err := aggregatedAvailable(ctx, api.client); err != nil {
		return err
	}
	return l.startKarmadaControllers()
}

// applyKarmada installs Karmada's namespaces, CRDs, aggregated API and webhooks
// from the module's own manifests.
func (l *Lab) applyKarmada(ctx context.Context, api *applier) error {
	facts, err := l.karmadaFacts()
	if err != nil {
		return err
	}
	own, err := render("karmada.yaml", facts)
	if err != nil {
		return err
	}
	if err := api.Apply(ctx, own); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(l.tools.Karmada, "charts/karmada/_crds/bases/*/*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no CRDs in %s: %w", l.tools.Karmada, err)
	}
	files = append(files, filepath.Join(l.tools.Karmada, "artifacts/deploy/cluster-proxy-admin-rbac.yaml"))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for _, file := range files {
		g.Go(func() error { return api.ApplyFile(gctx, file, nil) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// Karmada's programs end when they cannot find a kind of their own.
	kinds, err := definedKinds(ctx, api.client)
	if err != nil {
		return err
	}
	if err := api.WaitServed(ctx, kinds); err != nil {
		return err
	}
	return api.ApplyFile(ctx, filepath.Join(l.tools.Karmada, "artifacts/deploy/webhook-configuration.yaml"),
		func(text string) string {
			text = strings.ReplaceAll(text, "{{caBundle}}", facts.CABundle)
			return strings.ReplaceAll(text, "https://karmada-webhook.karmada-system.svc:443/", facts.WebhookURL+"/")
		})
}

// definedKinds lists what the CRDs of an API server define.
func definedKinds(ctx context.Context, client dynamic.Interface) ([]schema.GroupKind, error) {
	resource := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	list, err := client.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list CRDs: %w", err)
	}
	var kinds []schema.GroupKind
	for _, crd := range list.Items {
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		kinds = append(kinds, schema.GroupKind{Group: group, Kind: kind})
	}
	return kinds, nil
}

type karmadaFacts struct {
	CABundle       string
	AggregatedPort int
	WebhookURL     string
}

func (l *Lab) karmadaFacts() (karmadaFacts, error) {
	ca, err := os.ReadFile(l.path("pki", ContextKarmada, "ca.crt"))
	if err != nil {
		return karmadaFacts{}, fmt.Errorf("read Karmada's certificate authority: %w", err)
	}
	return karmadaFacts{
		CABundle:       base64.StdEncoding.EncodeToString(ca),
		AggregatedPort: portAggregated + l.index,
		WebhookURL:     "https://" + hostPort(l.address(), portKarmadaWebhook),
	}, nil
}

func (l *Lab) startAggregated() error {
	kubeconfig := l.path("pki", ContextKarmada, "admin.kubeconfig")
	return l.procs.Ensure(process{Name: "karmada-aggregated-apiserver", Argv: []string{
		l.tools.path("karmada-aggregated-apiserver"),
		flag("kubeconfig", kubeconfig),
		flag("authentication-kubeconfig", kubeconfig),
		flag("authorization-kubeconfig", kubeconfig),
		flag("etcd-servers", l.etcdURL()),
		flag("etcd-prefix", "/karmada-aggregated"),
		flag("bind-address", "127.0.0.1"),
		flag("secure-port", portAggregated+l.index),
		flag("tls-cert-file", l.path("pki", ContextKarmada, "server.crt")),
		flag("tls-private-key-file", l.path("pki", ContextKarmada, "server.key")),
		flag("audit-log-path", os.DevNull),
	}})
}

func (l *Lab) startWebhook() error {
	return l.procs.Ensure(process{Name: "karmada-webhook", Argv: []string{
		l.tools.path("karmada-webhook"),
		flag("kubeconfig", l.path("pki", ContextKarmada, "admin.kubeconfig")),
		flag("bind-address", l.address()),
		flag("secure-port", portKarmadaWebhook),
		flag("metrics-bind-address", hostPort(l.address(), portWebhookMetrics)),
		flag("health-probe-bind-address", hostPort(l.address(), portWebhookHealth)),
		flag("cert-dir", l.path("pki", ContextKarmada)),
		flag("tls-cert-file-name", "server.crt"),
		flag("tls-private-key-file-name", "server.key"),
	}})
}

// startKarmadaControllers uses shorter periods than Karmada's defaults where
// tests would otherwise wait for a member to be seen as lost and as back.
func (l *Lab) startKarmadaControllers() error {
	kubeconfig := flag("kubeconfig", l.path("pki", ContextKarmada, "admin.kubeconfig"))
	err := l.procs.Ensure(process{Name: "karmada-controller-manager", Argv: append([]string{
		l.tools.path("karmada-controller-manager"),
		kubeconfig,
		flag("leader-elect", false),
		flag("metrics-bind-address", hostPort(l.address(), portKarmadaCM)),
		flag("health-probe-bind-address", hostPort(l.address(), portKarmadaCMHealth)),
	}, clusterStatusFlags()...)})
	if err != nil {
		return err
	}
	return l.procs.Ensure(process{Name: "karmada-scheduler", Argv: []string{
		l.tools.path("karmada-scheduler"),
		kubeconfig,
		flag("leader-elect", false),
		flag("enable-scheduler-estimator", false),
		flag("metrics-bind-address", hostPort(l.address(), portKarmadaSched)),
		flag("health-probe-bind-address", hostPort(l.address(), portKarmadaSchedHealth)),
	}})
}

func clusterStatusFlags() []string {
	return []string{
		flag("cluster-status-update-frequency", "5s"),
		flag("cluster-failure-threshold", "10s"),
		flag("cluster-success-threshold", "5s"),
	}
}

// aggregatedAvailable waits until cluster.karmada.io is served.
func aggregatedAvailable(ctx context.Context, client dynamic.Interface) error {
	services := client.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1",
		Resource: "apiservices"})
	return poll(ctx, 200*time.Millisecond, func(ctx context.Context) error {
		u, err := services.Get(ctx, "v1alpha1.cluster.karmada.io", metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get APIService: %w", err)
		}
		if err := conditionTrue(u, "Available"); err != nil {
			return err
		}
		// The API server's own view lags behind the condition.
		if _, err := client.Resource(clustersResource()).List(ctx, metav1.ListOptions{}); err != nil {
			return fmt.Errorf("list clusters: %w", err)
		}
		return nil
	})
}

// conditionTrue returns nil, or why the condition is not true.
func conditionTrue(u *unstructured.Unstructured, kind string) error {
	var status struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &status); err != nil {
		return fmt.Errorf("read conditions of %s: %w", u.GetName(), err)
	}
	c := apimeta.FindStatusCondition(status.Status.Conditions, kind)
	switch {
	case c == nil:
		return fmt.Errorf("%s %s has no condition %s yet", u.GetKind(), u.GetName(), kind)
	case c.Status != metav1.ConditionTrue:
		return fmt.Errorf("%s %s is not %s: %s", u.GetKind(), u.GetName(), kind, c.Message)
	default:
		return nil
	}
}

func clustersResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "cluster.karmada.io", Version: "v1alpha1", Resource: "clusters"}
}

// join registers the i-th cluster with Karmada, the way its mode says.
func (l *Lab) join(ctx context.Context, i int) error {
	c := l.Topology.Clusters[i]
	if c.Mode == ModePull {
		return l.startAgent(i)
	}
	api, err := l.applier(ContextKarmada)
	if err != nil {
		return err
	}
	if _, err := api.client.Resource(clustersResource()).Get(ctx, c.Name, metav1.GetOptions{}); err == nil {
		return nil
	}
	return run(ctx, "", l.tools.path("karmadactl"), "join", c.Name,
		flag("kubeconfig", l.Kubeconfig()),
		flag("karmada-context", ContextKarmada),
		flag("cluster-kubeconfig", l.Kubeconfig()),
		flag("cluster-context", c.Name))
}

func (l *Lab) startAgent(i int) error {
	c := l.Topology.Clusters[i]
	return l.procs.Ensure(process{Name: c.Name + "-karmada-agent", Argv: append([]string{
		l.tools.path("karmada-agent"),
		flag("kubeconfig", l.path("pki", c.Name, "admin.kubeconfig")),
		flag("karmada-kubeconfig", l.path("pki", ContextKarmada, "admin.kubeconfig")),
		flag("karmada-context", ContextKarmada),
		flag("cluster-name", c.Name),
		flag("cluster-api-endpoint", l.memberURL(i)),
		flag("report-secrets", "None"),
		flag("leader-elect", false),
		flag("metrics-bind-address", hostPort(l.address(), memberPort(portMemberAgent, i))),
		flag("health-probe-bind-address", hostPort(l.address(), memberPort(portMemberAgentHealth, i))),
	}, clusterStatusFlags()...)})
}

// clusterReady waits until Karmada sees the i-th cluster as Ready.
func (l *Lab) clusterReady(ctx context.Context, i int) error {
	api, err := l.applier(ContextKarmada)
	if err != nil {
		return err
	}
	name := l.Topology.Clusters[i].Name
	return poll(ctx, 200*time.Millisecond, func(ctx context.Context) error {
		u, err := api.client.Resource(clustersResource()).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get Cluster: %w", err)
		}
		return conditionTrue(u, "Ready")
	})
}
