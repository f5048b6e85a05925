// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestRenderAppliedInItsOrderMakesWhatInstallMakes, on the Karmada API and on the host.
func TestRenderAppliedInItsOrderMakesWhatInstallMakes(t *testing.T) {
	k := newKarmada(t)
	flags := []string{"--image-pull-secret=credential", "--controller-replicas=3", "--registry=example.net/own"}
	k.available(t)
	k.succeeds(t, append([]string{"install", "--host-context=lost-member", "--wait=false",
		"--karmada-server=https://karmada.example:5443"}, flags...)...)
	installed := k.ours(t)
	k.succeeds(t, "uninstall", "--host-context=lost-member")
	// A namespace takes what is in it along, where its controller runs.
	for _, left := range k.ours(t) {
		if err := k.removeOne(t.Context(), &unstructured.Unstructured{Object: left}); err != nil {
			t.Fatal(err)
		}
	}
	if left := k.ours(t); len(left) > 0 {
		t.Fatalf("left over: %q", slices.Sorted(maps.Keys(left)))
	}
	for _, to := range []string{"--render", "--render=host"} {
		if err := k.apply(t.Context(), rendered(t, append([]string{to}, flags...)...)...); err != nil {
			t.Fatal(err)
		}
	}
	got := k.ours(t)
	// What only install can write, and the controller edits.
	for _, name := range []string{
		"Secret sealane-controller/sealane-controller-kubeconfig",
		"ClusterPropagationPolicy sealane", "ClusterPropagationPolicy sealane-crds",
	} {
		if installed[name] == nil || got[name] != nil {
			t.Errorf("%s is installed: %v, rendered: %v", name, installed[name] != nil, got[name] != nil)
		}
		delete(installed, name)
	}
	for name, want := range installed {
		if !reflect.DeepEqual(want, got[name]) {
			t.Errorf("%s\ninstalled %v\nrendered  %v", name, want, got[name])
		}
		delete(got, name)
	}
	if len(got) > 0 || len(installed) < 40 {
		t.Errorf("of %d objects rendered alone: %q", len(installed), slices.Sorted(maps.Keys(got)))
	}
}

// available plays the host's controllers until the test ends: the controller's pods run as soon as they are wanted.
func (k *karmada) available(t *testing.T) {
	t.Helper()
	go func() {
		_ = until(t.Context(), func(ctx context.Context) (bool, error) {
			d := &appsv1.Deployment{}
			key := client.ObjectKey{Namespace: controllerName, Name: controllerName}
			if k.Get(ctx, key, d) == nil && d.Status.ObservedGeneration < d.Generation {
				n := *d.Spec.Replicas
				d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n,
					ReadyReplicas: n, AvailableReplicas: n}
				_ = k.Status().Update(ctx, d)
			}
			return false, nil
		})
	}()
}

// TestRenderRefusesWhatItWouldIgnore: a word that names no API server, and what goes into the ClusterSet, which is not
// rendered, are no reason to print anything.
func TestRenderRefusesWhatItWouldIgnore(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"--render=member", "--render=karmada or --render=host"},
		{"--render --globalnet=Auto", "found: --globalnet to do: leave it out, and say it in your ClusterSet by " +
			"spec.globalnet.mode"},
		{"--render=host --globalnet=On", "spec.globalnet.mode"},
		{"--render --globalnet=Of", "spec.globalnet.mode"},
		{"--render -C c1,c2", "spec.clusterAffinity"},
		{"--render --clusterset=blue --output-dir=" + filepath.Join(t.TempDir(), "base"), "metadata.name"},
	} {
		var out, failed bytes.Buffer
		streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &failed}
		args := append([]string{"kubectl-karmada-sealane", "install"}, strings.Fields(c.args)...)
		if code := run(args, streams); code == 0 || out.Len() > 0 {
			t.Errorf("%s: exit code %d, printed %d bytes", c.args, code, out.Len())
		}
		if !strings.Contains(strings.Join(strings.Fields(failed.String()), " "), c.says) {
			t.Errorf("%s: says %s, want %q", c.args, failed.String(), c.says)
		}
	}
}

// TestKustomizeBuildsWhatIsRendered, also with an overlay, and again over what an earlier version wrote.
func TestKustomizeBuildsWhatIsRendered(t *testing.T) {
	dir := t.TempDir()
	for _, to := range []string{"--render", "--render=host"} {
		want := map[string]map[string]any{}
		for _, o := range rendered(t, to) {
			want[describe(o)] = o.Object
		}
		base := filepath.Join(dir, to, "base")
		for range 2 {
			if out, code := installs("install", to, "--output-dir="+base); code != 0 {
				t.Fatalf("exit code %d: %s", code, out)
			}
			path := filepath.Join(base, baseKustomization)
			old, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			old = append(old, "- left.yaml\n"...)
			if files, _ := os.ReadDir(base); len(files) != 2 {
				t.Errorf("files: %v", files)
			}
			if err := os.WriteFile(path, old, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if out, code := installs("install", to, "--output-dir="+base); code != 0 {
			t.Fatalf("exit code %d: %s", code, out)
		}
		overlay := filepath.Join(dir, to, "overlay")
		if err := errors.Join(os.Mkdir(overlay, 0o700), os.WriteFile(filepath.Join(overlay, baseKustomization),
			[]byte("resources: [../base]\ncommonAnnotations: {team: network}\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		adapted := built(t, overlay)
		if len(adapted) != len(want) || len(want) < 5 {
			t.Errorf("%s: built %d objects of %d", to, len(adapted), len(want))
		}
		for _, got := range adapted {
			if got.GetAnnotations()["team"] != "network" {
				t.Errorf("%s lacks what the overlay adds", describe(got))
			}
		}
		for _, got := range built(t, base) {
			if !reflect.DeepEqual(got.Object, want[describe(got)]) {
				t.Errorf("%s\nbuilt    %v\nrendered %v", describe(got), got.Object, want[describe(got)])
			}
		}
	}
}

// TestABaseOfSomebodysOwnStays as it is, and so does the one for another API server.
func TestABaseOfSomebodysOwnStays(t *testing.T) {
	for _, name := range []string{baseKustomization, baseObjects, "kustomization.yml", "Kustomization"} {
		dir := t.TempDir()
		own := filepath.Join(dir, name)
		if err := os.WriteFile(own, []byte("resources: []\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, code := installs("install", "--render", "--output-dir="+dir)
		if code == 0 || !strings.Contains(out, "name another directory") {
			t.Errorf("%s: exit code %d: %s", name, code, out)
		}
		files, err := os.ReadDir(dir)
		text, _ := os.ReadFile(own)
		if err != nil || len(files) != 1 || string(text) != "resources: []\n" {
			t.Errorf("%s: found %v, %q, %v", name, files, text, err)
		}
	}
	dir := t.TempDir()
	if out, code := installs("install", "--render", "--output-dir="+dir); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	if out, code := installs("install", "--render=host", "--output-dir="+dir); code == 0 {
		t.Errorf("the host's objects were written over Karmada's: %s", out)
	}
	if out, code := installs("install", "--output-dir="+dir); code == 0 || !strings.Contains(out, "add --render") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// built are the objects that kustomize makes of a directory.
func built(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// installs runs a command line that asks no API server.
func installs(args ...string) (string, int) {
	var out bytes.Buffer
	code := run(append([]string{"kubectl-karmada-sealane"}, args...),
		genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out})
	return out.String(), code
}

// rendered are the objects that install prints, asking no API server.
func rendered(t *testing.T, flags ...string) []*unstructured.Unstructured {
	t.Helper()
	var out bytes.Buffer
	streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out}
	if code := run(append([]string{"kubectl-karmada-sealane", "install"}, flags...), streams); code != 0 {
		t.Fatalf("exit code %d: %s", code, out.String())
	}
	objects, err := decode(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// ours are all objects of any kind that are labelled as Sealane's, by their description, without what an API server
// writes itself. The ClusterSet is the user's, and has no label.
func (k *karmada) ours(t *testing.T) map[string]map[string]any {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(k.config)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := d.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]any{}
	for _, group := range groups {
		gv, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range group.APIResources {
			if slices.Contains(r.Verbs, "list") && gv.Group != v1alpha1.GroupName {
				k.addOurs(t, out, gv.WithKind(r.Kind))
			}
		}
	}
	return out
}

func (k *karmada) addOurs(t *testing.T, out map[string]map[string]any, kind schema.GroupVersionKind) {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := k.List(t.Context(), list, client.MatchingLabels{labelManagedBy: v1alpha1.ManagedBy})
	if meta.IsNoMatchError(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		unstructured.RemoveNestedField(o.Object, "status")
		unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "annotations")
		unstructured.RemoveNestedField(o.Object, "spec", "clusterIP")
		unstructured.RemoveNestedField(o.Object, "spec", "clusterIPs")
		for _, written := range []string{"uid", "resourceVersion", "generation", "managedFields", "creationTimestamp"} {
			unstructured.RemoveNestedField(o.Object, "metadata", written)
		}
		out[describe(o)] = o.Object
	}
}
