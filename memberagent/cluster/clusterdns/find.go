// SPDX-License-Identifier: Apache-2.0

package clusterdns

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The label of the Service that kubelets name to pods, and its usual name.
const (
	labelApp  = "k8s-app"
	dnsLabel  = "kube-dns"
	kubeDNS   = "kube-dns"
	portOfDNS = 53
)

// Found is the cluster's DNS.
type Found struct {
	// Service that pods ask, as "namespace/name"; "" where none was found.
	Service string
	// Unknown says what was found where nothing can be changed, in words; "" where something can, or nothing was found.
	Unknown string
	// Targets in the order in which they are to be changed: what is in the way goes before its replacement comes.
	Targets []Target

	// denied are the objects that may not be read, and seen all others that were looked for, whether they exist or not.
	denied []string
	seen   []client.Object
}

// Find looks for the cluster's DNS: the Service that pods ask, what serves it, and the object that configures that.
func (w Wiring) Find(ctx context.Context, c client.Reader) (*Found, error) {
	f := &Found{}
	service, err := w.service(ctx, c)
	if err != nil {
		return nil, err
	}
	if service != nil {
		f.Service = client.ObjectKeyFromObject(service).String()
	}
	program, err := programOf(ctx, c, service)
	if err != nil {
		return nil, err
	}
	if err := f.findNodeLocal(ctx, c); err != nil {
		return nil, err
	}
	if operator, err := f.findOperator(ctx, c); operator || err != nil {
		return f, err
	}
	stubs, err := f.configMap(ctx, c, inKubeSystem(stubsName))
	if err != nil {
		return nil, err
	}
	if stubs != nil {
		f.add(Target{driver: wiredStubs{}, Have: stubs, Off: !program.kubeDNS,
			What: stubKey + " in ConfigMap " + inKubeSystem(stubsName).String()})
	}
	return f, f.findCoreDNS(ctx, c, w, program)
}

// findNodeLocal adds NodeLocal DNSCache, where the cluster has it.
func (f *Found) findNodeLocal(ctx context.Context, c client.Reader) error {
	cm, err := f.configMap(ctx, c, inKubeSystem(nodeName))
	if err != nil || cm == nil {
		return err
	}
	if _, ok := dataOf(cm)[corefileKey]; ok {
		f.add(Target{driver: wiredNodeLocal{}, Have: cm, beside: true,
			What: "the Corefile of NodeLocal DNSCache in ConfigMap " + inKubeSystem(nodeName).String()})
	}
	return nil
}

// program that answers the Service.
type program struct {
	// what it is, in words; "" where it is not known.
	what string
	// corefile is the ConfigMap of a CoreDNS; its name is "" where this is none.
	corefile types.NamespacedName
	// kubeDNS says that it is kube-dns.
	kubeDNS bool
	// configMaps that it mounts, by name.
	configMaps []string
}

// findCoreDNS adds the Corefile and the file that it imports.
func (f *Found) findCoreDNS(ctx context.Context, c client.Reader, w Wiring, p *program) error {
	key := w.ConfigMap
	if key.Name == "" {
		key = p.corefile
	}
	unknown := p.what != "" && key.Name == "" && !p.kubeDNS
	if key.Name == "" {
		key = inKubeSystem(defaultName)
	}
	main, err := f.configMap(ctx, c, key)
	if err != nil {
		return err
	}
	custom, err := f.configMap(ctx, c, inKubeSystem(importedName))
	if err != nil {
		return err
	}
	corefile, ok := dataOf(main)[corefileKey]
	other := unknown || p.kubeDNS && w.ConfigMap.Name == ""
	imports := ok && !other && custom != nil && importsServers(corefile) &&
		(p.what == "" || slices.Contains(p.configMaps, importedName))
	var targets []Target
	if main != nil && ok {
		targets = append(targets, Target{
			driver: wiredCorefile{}, What: "the Corefile in ConfigMap " + key.String(), Have: main, Off: imports || other,
		})
	}
	if custom != nil {
		targets = append(targets, Target{
			driver: wiredImport{corefile: corefile}, Have: custom, Off: !imports,
			What: "the file " + importedKey + " in ConfigMap " + inKubeSystem(importedName).String(),
		})
	}
	if usual := inKubeSystem(defaultName); usual != key {
		left, err := f.configMap(ctx, c, usual)
		if err != nil {
			return err
		}
		if left != nil {
			targets = append(targets, Target{
				driver: wiredCorefile{}, What: "the Corefile in ConfigMap " + usual.String(), Have: left, Off: true,
			})
		}
	}
	f.add(targets...)
	if unknown {
		f.Unknown = fmt.Sprintf("the Service %s is served by %s, which is neither CoreDNS with its Corefile in a ConfigMap "+
			"nor another DNS that Sealane knows", f.Service, p.what)
	} else if !ok && !other && f.Service != "" {
		f.Unknown = fmt.Sprintf("the Service %s is served by pods of which no Deployment could be found, and there is no "+
			"Corefile in ConfigMap %s", f.Service, key)
		if p.what != "" {
			f.Unknown = fmt.Sprintf("the Service %s is served by %s, and there is no Corefile in its ConfigMap %s", f.Service,
				p.what, key)
		}
	}
	return nil
}

// add targets; those that are off come first.
func (f *Found) add(targets ...Target) {
	f.Targets = append(f.Targets, targets...)
	slices.SortStableFunc(f.Targets, func(a, b Target) int {
		switch {
		case a.Off == b.Off:
			return 0
		case a.Off:
			return -1
		}
		return 1
	})
}

// configMap returns the ConfigMap as it is, one without resourceVersion where there is none, and nil where it may not
// be read.
func (f *Found) configMap(ctx context.Context, c client.Reader, key types.NamespacedName) (client.Object, error) {
	cm := &corev1.ConfigMap{}
	err := c.Get(ctx, key, cm)
	switch {
	case apierrors.IsNotFound(err):
		cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	case apierrors.IsForbidden(err):
		f.denied = append(f.denied, "ConfigMap "+key.String())
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get ConfigMap %s: %w", key, err)
	}
	f.seen = append(f.seen, cm)
	return cm, nil
}

// service that pods ask: the one with the name server of the agent's own pod, or else the one that is labelled as the
// cluster's DNS. Nil where there is none.
func (w Wiring) service(ctx context.Context, c client.Reader) (*corev1.Service, error) {
	list := &corev1.ServiceList{}
	var options []client.ListOption
	if !w.Nameserver.IsValid() {
		options = append(options, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{labelApp: dnsLabel})
	}
	if err := c.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	var labelled []*corev1.Service
	for i := range list.Items {
		s := &list.Items[i]
		if w.Nameserver.IsValid() && slices.Contains(append(s.Spec.ClusterIPs, s.Spec.ClusterIP), w.Nameserver.String()) {
			return s, nil
		}
		serves := slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == portOfDNS })
		if s.Namespace == metav1.NamespaceSystem && s.Labels[labelApp] == dnsLabel && serves {
			labelled = append(labelled, s)
		}
	}
	if len(labelled) == 0 {
		return nil, nil //nolint:nilnil // a cluster may have none
	}
	return slices.MinFunc(labelled, func(a, b *corev1.Service) int {
		return cmp.Or(cmp.Compare(btoi(a.Name != kubeDNS), btoi(b.Name != kubeDNS)), strings.Compare(a.Name, b.Name))
	}), nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// programOf finds the Deployment whose pods a Service selects. To read any would take the right to read all of the
// cluster's, so only those are looked at that are named like the Service, as Helm's chart names them, coredns or
// kube-dns.
func programOf(ctx context.Context, c client.Reader, service *corev1.Service) (*program, error) {
	if service == nil || len(service.Spec.Selector) == 0 {
		return &program{}, nil
	}
	selector := labels.SelectorFromSet(service.Spec.Selector)
	for _, name := range slices.Compact([]string{service.Name, defaultName, kubeDNS}) {
		d := &appsv1.Deployment{}
		key := client.ObjectKey{Namespace: service.Namespace, Name: name}
		err := c.Get(ctx, key, d)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get Deployment %s: %w", key, err)
		}
		if selector.Matches(labels.Set(d.Spec.Template.Labels)) {
			return programIn(d), nil
		}
	}
	return &program{}, nil
}

// programIn a Deployment.
func programIn(d *appsv1.Deployment) *program {
	p := &program{what: "Deployment " + client.ObjectKeyFromObject(d).String()}
	spec := &d.Spec.Template.Spec
	for i := range spec.Volumes {
		if source := spec.Volumes[i].ConfigMap; source != nil {
			p.configMaps = append(p.configMaps, source.Name)
		}
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		if i == 0 {
			p.what += " with the image " + c.Image
		}
		p.kubeDNS = p.kubeDNS || c.Name == "kubedns"
		if name := corefileOf(spec, c); name != "" {
			p.corefile = types.NamespacedName{Namespace: d.Namespace, Name: name}
		}
	}
	return p
}

// corefileOf returns the name of the ConfigMap whose key Corefile is the file that a container's -conf names; "" where
// there is none.
func corefileOf(spec *corev1.PodSpec, c *corev1.Container) string {
	args := append(slices.Clone(c.Command), c.Args...)
	for i, arg := range args {
		flag, file, ok := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if !ok && i+1 < len(args) {
			file = args[i+1]
		}
		if flag != "-conf" && flag != "conf" || file == "" {
			continue
		}
		for _, mount := range c.VolumeMounts {
			if path.Clean(mount.MountPath) != path.Dir(file) {
				continue
			}
			for j := range spec.Volumes {
				if v := &spec.Volumes[j]; v.Name == mount.Name && v.ConfigMap != nil && holds(v.ConfigMap, path.Base(file)) {
					return v.ConfigMap.Name
				}
			}
		}
	}
	return ""
}

// holds says whether a file of a volume is the key Corefile of its ConfigMap.
func holds(v *corev1.ConfigMapVolumeSource, file string) bool {
	if len(v.Items) == 0 {
		return file == corefileKey
	}
	return slices.ContainsFunc(v.Items, func(k corev1.KeyToPath) bool { return k.Key == corefileKey && k.Path == file })
}

// NameserverOf returns the first name server of a pod's resolv.conf; not valid where there is none.
func NameserverOf(resolvConf string) netip.Addr {
	for line := range strings.Lines(resolvConf) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if addr, err := netip.ParseAddr(words[1]); err == nil {
			return addr
		}
	}
	return netip.Addr{}
}
