// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane"
	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/credential"
	"github.com/sealane-io/sealane/internal/installation"
	"github.com/sealane-io/sealane/internal/version"
)

const (
	// controllerName is that of the Deployment, and of the identity on the Karmada API.
	controllerName = "sealane-controller"
	// kubeconfigSecret on the host holds the controller's kubeconfig and token.
	kubeconfigSecret = "sealane-controller-kubeconfig"
	// annotationKubeconfig on the pod template restarts the controller when its kubeconfig changes.
	annotationKubeconfig = "sealane.io/kubeconfig-sha256"
	// defaultHostContext is what Karmada's own installation calls the host cluster's context.
	defaultHostContext = "karmada-host"
)

// controller is where and how sealane-controller runs.
type controller struct {
	mode            string
	host            hostCluster
	karmadaServer   string
	kubeconfigFile  string
	registry        string
	image           string
	agentImage      string
	dnsImage        string
	ipsec           bool
	ipsecImage      string
	imagePullPolicy string
	imagePullSecret string
	replicas        int32
}

// hostCluster is the cluster that hosts Karmada.
type hostCluster struct {
	kubeconfig string
	context    string
	namespace  string
}

func (h *hostCluster) addFlags(f *pflag.FlagSet) {
	f.StringVar(&h.kubeconfig, "host-kubeconfig", "",
		"kubeconfig file of the cluster that hosts Karmada (default: that of --kubeconfig)")
	f.StringVar(&h.context, "host-context", "",
		"context of the cluster that hosts Karmada (default: "+defaultHostContext+", where there is one)")
	f.StringVar(&h.namespace, "host-namespace", controllerName, "namespace of the controller on the host cluster")
}

func (c *controller) addFlags(f *pflag.FlagSet) {
	c.host.addFlags(f)
	f.StringVar(&c.mode, "controller", controllerDeployment,
		"how the controller runs: deployment (on the cluster that hosts Karmada) or external (a process that you start)")
	f.StringVar(&c.karmadaServer, "karmada-server", "",
		"URL at which the controller reaches the Karmada API (default: Karmada's Service on the host, else the server of "+
			"the kubeconfig)")
	f.StringVar(&c.kubeconfigFile, "controller-kubeconfig", "sealane-controller.kubeconfig",
		"file to write the controller's kubeconfig to, with --controller=external")
	f.StringVar(&c.registry, "registry", defaultRegistry,
		"registry, with a path if it has one, of the images controller, agent, dns and ipsec, of the tag "+version.Version)
	f.StringVar(&c.image, "controller-image", "", "image of the controller, in place of that of the registry")
	f.StringVar(&c.agentImage, "agent-image", "", "image of the members' agents, in place of that of the registry")
	f.StringVar(&c.dnsImage, "dns-image", "", "image of the members' DNS, in place of that of the registry")
	f.BoolVar(&c.ipsec, "ipsec", false, "have a container for cables by ipsec beside each node agent")
	f.StringVar(&c.ipsecImage, "ipsec-image", "", "image of that container, in place of that of the registry")
	f.StringVar(&c.imagePullSecret, "image-pull-secret", "",
		"Secret by which all images are pulled, in the namespace "+v1alpha1.Namespace+" of every member, and in the "+
			"controller's on the host")
	f.StringVar(&c.imagePullPolicy, "image-pull-policy", string(corev1.PullIfNotPresent), "pull policy of all images")
	f.Int32Var(&c.replicas, "controller-replicas", 2, "replicas of the controller; one of them leads")
}

func (c *controller) checkMode() error {
	if c.mode == controllerExternal || c.mode == controllerDeployment {
		return nil
	}
	return &finding{
		expected: "--controller to be deployment or external",
		found:    fmt.Sprintf("%q", c.mode),
		remedy:   "choose one of the two",
	}
}

// complete finds the host cluster, where the controller is to run on it.
func (c *controller) complete(o *options) error {
	if c.mode == controllerExternal {
		return nil
	}
	return c.host.complete(o)
}

func (h *hostCluster) complete(o *options) error {
	contexts := o.contexts(h.kubeconfig)
	if h.context == "" && h.kubeconfig == "" {
		h.context = defaultHostContext
	}
	if _, ok := contexts[h.context]; ok || h.context == "" {
		return nil
	}
	return &finding{
		expected: fmt.Sprintf("the cluster that hosts Karmada as context %q", h.context),
		found:    "contexts: " + strings.Join(o.contextNames(h.kubeconfig), ", "),
		remedy: "name it with --host-context (and --host-kubeconfig), or run the controller as a process of your own " +
			"with --controller=external",
	}
}

// imageOf returns an image: the one stated, or that of the registry.
func (c *controller) imageOf(name, stated string) string {
	if stated != "" {
		return stated
	}
	return strings.TrimSuffix(c.registry, "/") + "/" + name + ":" + version.Version
}

// bundle are the members' workloads and CRDs with this installation's images.
func (c *controller) bundle() ([]*unstructured.Unstructured, error) {
	images := installation.Images{
		Agent: c.imageOf("agent", c.agentImage), DNS: c.imageOf("dns", c.dnsImage), PullPolicy: c.imagePullPolicy,
		PullSecret: c.imagePullSecret,
	}
	if c.ipsec {
		images.IPsec = c.imageOf("ipsec", c.ipsecImage)
	}
	return installation.Templates(sealane.Artifacts, images)
}

// installBundle applies the members' bundle. Nothing reaches a cluster before a policy of the controller names it.
func (a *api) installBundle(ctx context.Context, c *controller, p *progress) error {
	templates, err := c.bundle()
	if err != nil {
		return err
	}
	// Before the templates: a policy of somebody else's that selects all objects of a kind would claim them for good.
	for _, policy := range installation.Policies(templates, nil) {
		err := a.Create(ctx, policy, client.FieldOwner(fieldManager))
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create clusterpropagationpolicy %s: %w", policy.Name, err)
		}
	}
	if err := a.apply(ctx, templates...); err != nil {
		return err
	}
	p.say("%d templates of the members' workloads on the Karmada API", len(templates))
	return nil
}

// install gives the controller its identity on the Karmada API and starts it, or says how to.
func (c *controller) install(ctx context.Context, o *options, karmada *api, p *progress) error {
	token, err := karmada.controllerIdentity(ctx, p)
	if err != nil {
		return err
	}
	if c.mode == controllerExternal {
		return c.external(karmada, token, p)
	}
	host, err := o.connect(c.host.kubeconfig, c.host.context)
	if err != nil {
		return err
	}
	server, err := c.server(ctx, karmada, host)
	if err != nil {
		return err
	}
	kubeconfig, err := controllerKubeconfig(karmada.config, server, credential.TokenKey)
	if err != nil {
		return err
	}
	return c.deploy(ctx, host, server, kubeconfig, token, p)
}

// controllerIdentity applies the ServiceAccount and its rights, and returns a token that expires: the controller
// renews it. One of an earlier release, which did not, goes.
func (a *api) controllerIdentity(ctx context.Context, p *progress) (string, error) {
	objects, err := manifests("artifacts/controller/karmada.yaml")
	if err != nil {
		return "", err
	}
	if err := a.apply(ctx, objects...); err != nil {
		return "", err
	}
	key := metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: controllerName}
	if err := a.removeOne(ctx, &corev1.Secret{ObjectMeta: key}); err != nil {
		return "", err
	}
	request := credential.Request(credential.Lifetime)
	if err := a.SubResource("token").Create(ctx, &corev1.ServiceAccount{ObjectMeta: key}, request); err != nil {
		return "", &finding{
			expected: "a token of ServiceAccount " + v1alpha1.Namespace + "/" + controllerName + " on the Karmada API",
			found:    err.Error(),
			remedy: "see that Karmada's API server issues tokens (its flags --service-account-issuer and " +
				"--service-account-signing-key-file)",
		}
	}
	p.say("controller identity %s/%s on the Karmada API, with a token that expires at %s unless the controller renews it",
		v1alpha1.Namespace, controllerName, request.Status.ExpirationTimestamp.UTC().Format(time.RFC3339))
	return request.Status.Token, nil
}

func (c *controller) external(karmada *api, token string, p *progress) error {
	server := c.karmadaServer
	if server == "" {
		server = karmada.config.Host
	}
	file, err := filepath.Abs(c.kubeconfigFile)
	if err != nil {
		return fmt.Errorf("resolve %s: %w", c.kubeconfigFile, err)
	}
	kubeconfig, err := controllerKubeconfig(karmada.config, server, filepath.Base(file)+".token")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".token", []byte(token), 0o600); err != nil {
		return fmt.Errorf("write the controller's token: %w", err)
	}
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		return fmt.Errorf("write the controller's kubeconfig: %w", err)
	}
	p.say("controller: start it as a process of your own, which may write %s.token:\n\n"+
		"  sealane-controller --kubeconfig=%s\n", file, file)
	return nil
}

// server finds the URL at which pods of the host reach the Karmada API.
func (c *controller) server(ctx context.Context, karmada, host *api) (string, error) {
	if c.karmadaServer != "" {
		return c.karmadaServer, nil
	}
	var svc corev1.Service
	err := host.Get(ctx, client.ObjectKey{Namespace: "karmada-system", Name: "karmada-apiserver"}, &svc)
	if err == nil && len(svc.Spec.Ports) > 0 {
		return fmt.Sprintf("https://%s.%s.svc:%d", svc.Name, svc.Namespace, svc.Spec.Ports[0].Port), nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return "", &finding{
			expected: fmt.Sprintf("the cluster that hosts Karmada (context %q) to answer", host.context),
			found:    err.Error(),
			remedy:   "see that it can be reached from here, or name another with --host-context",
		}
	}
	if loopback(karmada.config.Host) {
		return "", &finding{
			expected: "a URL of the Karmada API that pods of the host cluster reach",
			found:    "no Service karmada-system/karmada-apiserver there, and the kubeconfig's server is " + karmada.config.Host,
			remedy:   "name the URL with --karmada-server",
		}
	}
	return karmada.config.Host, nil
}

func loopback(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	if u.Hostname() == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err == nil && ip.IsLoopback()
}

// controllerKubeconfig renders a kubeconfig that names a token's file, relative to its own directory, and trusts what
// the administrator's trusts.
func controllerKubeconfig(admin *rest.Config, server, tokenFile string) ([]byte, error) {
	tls := rest.CopyConfig(admin)
	if err := rest.LoadTLSFiles(tls); err != nil {
		return nil, fmt.Errorf("read the CA of the Karmada API: %w", err)
	}
	name := "karmada"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   server,
		CertificateAuthorityData: tls.CAData,
		InsecureSkipTLSVerify:    tls.Insecure,
		TLSServerName:            tls.ServerName,
	}
	config.AuthInfos[controllerName] = &clientcmdapi.AuthInfo{TokenFile: tokenFile}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: controllerName, Namespace: v1alpha1.Namespace}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("write the controller's kubeconfig: %w", err)
	}
	return content, nil
}

// deploy applies the controller's Deployment on the host and waits until it is available.
func (c *controller) deploy(ctx context.Context, host *api, server string, kubeconfig []byte, token string,
	p *progress) error {
	objects, err := c.hostObjects(kubeconfig, token)
	if err != nil {
		return err
	}
	if err := host.apply(ctx, objects...); err != nil {
		return err
	}
	p.say("controller: Deployment %s/%s on the host (context %q), Karmada API at %s", c.host.namespace, controllerName,
		host.context, server)
	return c.waitAvailable(ctx, host, p)
}

// waitAvailable waits until the controller's Deployment has only pods of its newest template, and one is available.
func (c *controller) waitAvailable(ctx context.Context, host *api, p *progress) error {
	var last string
	var pods startingPods
	err := until(ctx, func(ctx context.Context) (bool, error) {
		var d appsv1.Deployment
		if err := host.Get(ctx, client.ObjectKey{Namespace: c.host.namespace, Name: controllerName}, &d); err != nil {
			return false, err
		}
		want := ptr.Deref(d.Spec.Replicas, 1)
		last = fmt.Sprintf("%d of %d replicas updated, %d available", d.Status.UpdatedReplicas, want,
			d.Status.AvailableReplicas)
		done := d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas >= want &&
			d.Status.AvailableReplicas >= 1
		if !done {
			if why := pods.blocked(ctx, host, c.host.namespace); why != "" {
				last += "; " + why
			}
		}
		p.state("controller", last)
		return done, nil
	})
	if err != nil {
		return &finding{
			expected: "the controller to become available",
			found:    fmt.Sprintf("%s: %v", last, err),
			remedy: fmt.Sprintf("kubectl --context %s -n %s describe pods; kubectl --context %s -n %s logs deploy/%s",
				host.context, c.host.namespace, host.context, c.host.namespace, controllerName),
		}
	}
	return nil
}

// hostObjects are the host's manifests with this installation's image, flags and credentials. A new token alone
// does not restart the controller.
func (c *controller) hostObjects(kubeconfig []byte, token string) ([]*unstructured.Unstructured, error) {
	objects, err := c.host.objects()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(kubeconfig)
	for _, object := range objects {
		switch object.GetKind() {
		case "Secret":
			err = unstructured.SetNestedStringMap(object.Object, map[string]string{
				"kubeconfig":        base64.StdEncoding.EncodeToString(kubeconfig),
				credential.TokenKey: base64.StdEncoding.EncodeToString([]byte(token)),
			}, "data")
		case "Deployment":
			err = c.fill(object, hex.EncodeToString(sum[:]))
		}
		if err != nil {
			return nil, fmt.Errorf("fill %s: %w", describe(object), err)
		}
	}
	return objects, nil
}

// renderedOnHost are the objects of the host without the Secret: it holds a token, which only install makes.
func (c *controller) renderedOnHost() ([]*unstructured.Unstructured, error) {
	return c.upgradedOnHost("")
}

// upgradedOnHost are the objects of the host without the Secret, which stays as it is, and so does the sum of what it
// holds.
func (c *controller) upgradedOnHost(sum string) ([]*unstructured.Unstructured, error) {
	objects, err := c.host.objects()
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Secret" })
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		if err := c.fill(object, sum); err != nil {
			return nil, fmt.Errorf("fill %s: %w", describe(object), err)
		}
	}
	return objects, nil
}

// objects are everything of ours on the host, the Secret without its content.
func (h *hostCluster) objects() ([]*unstructured.Unstructured, error) {
	objects, err := manifests("artifacts/controller/host.yaml")
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		switch object.GetKind() {
		case "Namespace":
			object.SetName(h.namespace)
		case "ClusterRole", "ClusterRoleBinding":
			// One host may have several Karmadas.
			object.SetName(strings.Replace(object.GetName(), controllerName, h.namespace, 1))
		default:
			object.SetNamespace(h.namespace)
		}
		if kind := object.GetKind(); kind != "RoleBinding" && kind != "ClusterRoleBinding" {
			continue
		}
		subject := map[string]any{"kind": "ServiceAccount", "name": controllerName, "namespace": h.namespace}
		if err := unstructured.SetNestedSlice(object.Object, []any{subject}, "subjects"); err != nil {
			return nil, fmt.Errorf("fill %s: %w", describe(object), err)
		}
	}
	return objects, nil
}

// fill sets image, flags and replicas of the Deployment, and the sum of its kubeconfig, if there is one.
func (c *controller) fill(object *unstructured.Unstructured, sum string) error {
	var d appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &d); err != nil {
		return err
	}
	d.Spec.Replicas = &c.replicas
	if sum != "" {
		d.Spec.Template.Annotations = map[string]string{annotationKubeconfig: sum}
	}
	container := &d.Spec.Template.Spec.Containers[0]
	container.Image = c.imageOf("controller", c.image)
	if c.imagePullSecret != "" {
		d.Spec.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: c.imagePullSecret}}
	}
	container.ImagePullPolicy = corev1.PullPolicy(c.imagePullPolicy)
	container.Args = append(container.Args, "--token-secret="+c.host.namespace+"/"+kubeconfigSecret)
	filled, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&d)
	if err != nil {
		return err
	}
	delete(filled, "status")
	object.Object = filled
	return nil
}
