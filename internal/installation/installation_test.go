// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane"
	"github.com/sealane-io/sealane/api/v1alpha1"
)

func templates(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	objects, err := Templates(sealane.Artifacts,
		Images{Agent: "example.org/agent:1", DNS: "example.org/dns:1", IPsec: "example.org/ipsec:1",
			PullPolicy: "Never", PullSecret: "registry"})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func TestTemplatesOrderAndImages(t *testing.T) {
	images := map[string]string{}
	var kinds []string
	for _, o := range templates(t) {
		kinds = append(kinds, o.GetKind())
		if o.GetLabels()[labelManagedBy] != v1alpha1.ManagedBy {
			t.Errorf("%s %s is not labelled as ours", o.GetKind(), o.GetName())
		}
		containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		if err != nil {
			t.Fatal(err)
		}
		secrets, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "imagePullSecrets")
		if err != nil || len(containers) > 0 && fmt.Sprint(secrets) != "[map[name:registry]]" {
			t.Errorf("%s is pulled by %v, %v", o.GetName(), secrets, err)
		}
		for _, c := range containers {
			c := c.(map[string]any)
			images[o.GetName()+"/"+c["name"].(string)] = c["image"].(string)
			if c["imagePullPolicy"] != "Never" {
				t.Errorf("%s pulls %v", o.GetName(), c["imagePullPolicy"])
			}
		}
	}
	crds := len(MemberCRDs())
	first := strings.Repeat("CustomResourceDefinition ", crds) + "Namespace"
	if got := strings.Join(kinds[:crds+1], " "); got != first {
		t.Errorf("the first kinds are %s", got)
	}
	for name, want := range map[string]string{
		"sealane-cluster-agent/cluster": "example.org/agent:1", "sealane-node/node": "example.org/agent:1",
		"sealane-dns/dns": "example.org/dns:1", "sealane-node/ipsec": "example.org/ipsec:1",
	} {
		if images[name] != want {
			t.Errorf("%s runs %q, want %s", name, images[name], want)
		}
	}
}

// TestIPsecIsThereWhereItIsAskedFor, and where it is not the node agent is not told of it: it would wait for charon.
func TestIPsecIsThereWhereItIsAskedFor(t *testing.T) {
	for _, image := range []string{"", "example.org/ipsec:1"} {
		objects, err := Templates(sealane.Artifacts, Images{Agent: "a", DNS: "d", IPsec: image})
		if err != nil {
			t.Fatal(err)
		}
		var container, told bool
		for _, o := range objects {
			containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range containers {
				fields := c.(map[string]any)
				container = container || fields["name"] == "ipsec"
				told = told || fields["name"] == "node" && strings.Contains(fmt.Sprint(fields["args"]), "--ipsec-dir=")
			}
		}
		if want := image != ""; container != want || told != want {
			t.Errorf("image %q: a container %v, the agent is told of it %v", image, container, told)
		}
	}
}

func TestTemplatesNamesTheFileThatDoesNotParse(t *testing.T) {
	files := fstest.MapFS{"artifacts/deploy/bad.yaml": {Data: []byte("a: [")}}
	for _, crd := range MemberCRDs() {
		files["artifacts/crds/sealane.io_"+crd+".yaml"] = &fstest.MapFile{Data: []byte("kind: CustomResourceDefinition")}
	}
	if _, err := Templates(files, Images{}); err == nil || !strings.Contains(err.Error(), "bad.yaml") {
		t.Errorf("error %v", err)
	}
}

// shipped are the pod templates of all manifests, the controller's included, by the name of what carries them.
func shipped(t *testing.T) map[string]corev1.PodSpec {
	t.Helper()
	host, err := readObjects(sealane.Artifacts, "artifacts/controller/host.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]corev1.PodSpec{}
	for _, o := range append(templates(t), host...) {
		fields, found, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
		if err != nil || !found {
			continue
		}
		var spec corev1.PodSpec
		err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(fields, &spec, true)
		if err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		pods[o.GetName()] = spec
	}
	return pods
}

// TestPodsHaveAsFewRightsAsWork: all run under the runtime's seccomp profile with a root file system that they cannot
// write, and gain nothing by executing a file. Only the node agent has capabilities, which it adds for root, and the
// host's network.
func TestPodsHaveAsFewRightsAsWork(t *testing.T) {
	pods := shipped(t)
	const members = "sealane-cluster-agent sealane-controller sealane-dns sealane-node"
	if got := strings.Join(slices.Sorted(maps.Keys(pods)), " "); got != members {
		t.Errorf("pods of %s, want those of %s", got, members)
	}
	for name, spec := range pods {
		onNode := name == "sealane-node"
		if spec.HostNetwork != onNode || spec.HostPID || spec.HostIPC {
			t.Errorf("%s: host's network %v, PIDs %v, IPC %v", name, spec.HostNetwork, spec.HostPID, spec.HostIPC)
		}
		for _, v := range spec.Volumes {
			if v.HostPath != nil && !onNode {
				t.Errorf("%s mounts %s of its node", name, v.HostPath.Path)
			}
		}
		if len(spec.EphemeralContainers) > 0 {
			t.Errorf("%s has ephemeral containers", name)
		}
		for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
			want := rights{seccomp: corev1.SeccompProfileTypeRuntimeDefault, user: 65532, nonRoot: true, drop: "ALL"}
			if onNode {
				want.user, want.nonRoot, want.add = 0, false, "NET_ADMIN NET_RAW"
			}
			if got := rightsOf(&spec, &c); got != want {
				t.Errorf("container %s of %s: %+v, want %+v", c.Name, name, got, want)
			}
		}
	}
}

// rights of a container, as those of its pod and its own make them.
type rights struct {
	seccomp                          corev1.SeccompProfileType
	user                             int64 // -1 is that of the image
	nonRoot                          bool
	privileged, escalates, writeable bool
	drop, add                        string
}

func rightsOf(spec *corev1.PodSpec, c *corev1.Container) rights {
	pod := ptr.Deref(spec.SecurityContext, corev1.PodSecurityContext{})
	own := ptr.Deref(c.SecurityContext, corev1.SecurityContext{})
	names := func(list []corev1.Capability) string {
		out := make([]string, 0, len(list))
		for _, name := range list {
			out = append(out, string(name))
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	caps := ptr.Deref(own.Capabilities, corev1.Capabilities{})
	return rights{
		seccomp:    ptr.Deref(cmp.Or(own.SeccompProfile, pod.SeccompProfile), corev1.SeccompProfile{}).Type,
		user:       ptr.Deref(cmp.Or(own.RunAsUser, pod.RunAsUser), -1),
		nonRoot:    ptr.Deref(cmp.Or(own.RunAsNonRoot, pod.RunAsNonRoot), false),
		privileged: ptr.Deref(own.Privileged, false),
		escalates:  ptr.Deref(own.AllowPrivilegeEscalation, true),
		writeable:  !ptr.Deref(own.ReadOnlyRootFilesystem, false),
		drop:       names(caps.Drop), add: names(caps.Add),
	}
}

func TestPolicies(t *testing.T) {
	selected := 0
	for _, p := range Policies(templates(t), []string{"c1", "c2"}) {
		want := []string{NoCluster, "c1", "c2"}
		if got := p.Spec.Placement.ClusterAffinity.ClusterNames; !slices.Equal(got, want) {
			t.Errorf("%s goes to %q, want %q", p.Name, got, want)
		}
		if keep := *p.Spec.PreserveResourcesOnDeletion; keep != (p.Name == CRDPolicyName) {
			t.Errorf("%s keeps what it spread: %v", p.Name, keep)
		}
		tolerations := p.Spec.Placement.ClusterTolerations
		if len(tolerations) != 1 || tolerations[0].Operator != corev1.TolerationOpExists {
			t.Errorf("%s tolerates %v", p.Name, tolerations)
		}
		selected += len(p.Spec.ResourceSelectors)
	}
	if all := len(templates(t)); selected != all {
		t.Errorf("%d of %d templates are selected", selected, all)
	}
}

// TestWithoutMembersNothingIsPropagated: an empty list of names would be every cluster.
func TestWithoutMembersNothingIsPropagated(t *testing.T) {
	for _, p := range Policies(templates(t), nil) {
		for _, name := range p.Spec.Placement.ClusterAffinity.ClusterNames {
			if len(validation.IsDNS1123Label(name)) == 0 {
				t.Errorf("%s names %q, which a cluster may be called", p.Name, name)
			}
		}
		if len(p.Spec.Placement.ClusterAffinity.ClusterNames) == 0 {
			t.Errorf("%s goes to every cluster", p.Name)
		}
	}
}
