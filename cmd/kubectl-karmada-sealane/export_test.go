// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"github.com/karmada-io/karmada/pkg/util/names"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

func TestExportAndUnexport(t *testing.T) {
	k := newKarmada(t)
	k.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "sample"}})
	k.succeeds(t, "export", "whereami", "-n", "sample", "-C", "c2", "--dry-run")
	export := &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "whereami"}}
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(export), export); !apierrors.IsNotFound(err) {
		t.Errorf("--dry-run made a ServiceExport: %v", err)
	}
	k.succeeds(t, "export", "whereami", "-n", "sample", "-C", "c2")
	k.succeeds(t, "export", "whereami", "-n", "sample", "-C", "c1,c2")
	k.succeeds(t, "export", "whereami", "-n", "sample", "-C", "c1,c2", "--mode=ClusterIP", "--import-clusters=c3,c1",
		"--import-selector=env!=test")
	k.get(t, export)
	k.succeeds(t, "export", "whereami", "-n", "sample", "-C", "c1,c2", "--import-clusters=c2")
	k.get(t, export)
	if got := fmt.Sprint(export.Annotations); got != "map[sealane.io/import-cluster-selector:env!=test "+
		"sealane.io/import-clusters:c2 sealane.io/service-mode:ClusterIP]" {
		t.Errorf("annotations of the ServiceExport: %s", got)
	}
	policy := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "sample",
		Name: "sealane-export-whereami"}}
	k.get(t, policy)
	if got := fmt.Sprint(policy.Spec.Placement.ClusterAffinity.ClusterNames); got != "[c1 c2]" {
		t.Errorf("the policy selects %s, expected [c1 c2]", got)
	}
	k.succeeds(t, "unexport", "whereami", "-n", "sample")
	for _, object := range []client.Object{export, policy} {
		if err := k.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			t.Errorf("unexport left %T: %v", object, err)
		}
	}
	k.succeeds(t, "unexport", "whereami", "-n", "sample")

	k.create(t, &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "theirs"}})
	k.fails(t, []string{"somebody else made it"}, "unexport", "theirs", "-n", "sample")
	k.fails(t, []string{"annotate it yourself"}, "export", "theirs", "-n", "sample", "-C", "c1", "--mode=ClusterIP")
	k.fails(t, []string{"no such namespace"}, "export", "whereami", "-n", "nowhere", "-C", "c1")
	k.fails(t, []string{"c9"}, "export", "whereami", "-n", "sample", "-C", "c9")
	for flag, word := range map[string]string{
		"--mode=Clusterip":         "ClusterSetIP",
		"--mode=":                  "ClusterSetIP",
		"--import-clusters=c1,c9":  "c9",
		"--import-clusters=c1;c2":  "separated by commas",
		"--import-selector=":       "it is empty",
		"--import-selector=a==b=c": "kubectl's -l",
		"--import-selector=n>3":    "does not work for clusters",
		"-o=xml":                   "yaml or json",
	} {
		k.fails(t, []string{word}, "export", "whereami", "-n", "sample", "-C", "c1", flag)
	}
	k.create(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "peers"},
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}})
	k.fails(t, []string{"is headless"}, "export", "peers", "-n", "sample", "-C", "c1", "--mode=ClusterIP")
	out := k.succeeds(t, "export", "peers", "-n", "sample", "-C", "c1", "--import-clusters=", "--dry-run")
	if !strings.Contains(out, `sealane.io/import-clusters: ""`) {
		t.Error("an empty list of importers is not written")
	}

	k.fails(t, []string{"a Service whereami in namespace sample", "--allow-missing"}, "export", "whereami", "-n", "sample",
		"--context", "lost-member")
	k.succeeds(t, "export", "whereami", "-n", "sample", "--context", "lost-member", "--allow-missing")
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(policy), policy); !apierrors.IsNotFound(err) {
		t.Errorf("export --context made a policy: %v", err)
	}
	k.succeeds(t, "unexport", "whereami", "-n", "sample", "--context", "lost-member")
}

// proxied puts a server in front of the API server that answers for Karmada's cluster proxy, too: in c1 there is
// no Service, in c2 there is shop/elsewhere, and c3 does not answer.
func (k *karmada) proxied(t *testing.T) {
	t.Helper()
	target, err := url.Parse(server.Host)
	if err != nil {
		t.Fatal(err)
	}
	apiServer := httputil.NewSingleHostReverseProxy(target)
	if apiServer.Transport, err = rest.TransportFor(server); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", apiServer)
	proxy := func(cluster, path string) string {
		return "/apis/cluster.karmada.io/v1alpha1/clusters/" + cluster + "/proxy" + path
	}
	for _, cluster := range []string{"c1", "c2"} {
		// A member has what the API server has, but for Services.
		mux.Handle(proxy(cluster, "/"), http.StripPrefix(proxy(cluster, ""), apiServer))
		mux.HandleFunc(proxy(cluster, "/api/v1/namespaces/{namespace}/services/{name}"),
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if name := r.PathValue("name"); cluster != "c2" || name != "elsewhere" {
					w.WriteHeader(http.StatusNotFound)
					fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,`+
						`"details":{"kind":"services","name":%q}}`, name)
					return
				}
				fmt.Fprint(w, `{"kind":"Service","apiVersion":"v1","metadata":{"namespace":"shop","name":"elsewhere"},`+
					`"spec":{"clusterIP":"10.96.0.9"}}`)
			})
	}
	mux.HandleFunc(proxy("c3", "/"), func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "dial tcp: i/o timeout", http.StatusServiceUnavailable)
	})
	front := httptest.NewTLSServer(mux)
	t.Cleanup(front.Close)
	config, direct := rest.CopyConfig(server), k.kubeconfig
	config.Host = front.URL
	t.Cleanup(func() { k.kubeconfig = direct })
	k.kubeconfig = writeKubeconfig(t, config, "karmada", "lost-member")
}

// TestExportLooksForTheServiceInTheMembers where the Karmada API has none.
func TestExportLooksForTheServiceInTheMembers(t *testing.T) {
	k := newKarmada(t)
	k.proxied(t)
	k.install(t)
	k.namespace(t, "shop")
	join := func(cluster string) {
		k.create(t, &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: cluster},
			Spec: v1alpha1.MemberSpec{ClusterSet: "default", Phase: v1alpha1.MemberActive}})
	}
	export := func(name string, more ...string) []string {
		return append([]string{"export", name, "-n", "shop", "--wait=false"}, more...)
	}
	made := func(name string) bool {
		err := k.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &mcsv1alpha1.ServiceExport{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	k.fails(t, []string{"a Service web in namespace shop", "there is no member yet", "--allow-missing"},
		export("web")...)
	join("c1")
	join("c2")
	k.fails(t, []string{"a Service web in namespace shop", "none on the Karmada API, nor in c1, c2", "--allow-missing"},
		export("web", "-C", "c1,c2")...)
	k.fails(t, []string{"none on the Karmada API, nor in c1"}, export("elsewhere", "-C", "c1")...)
	if made("web") || made("elsewhere") {
		t.Error("a ServiceExport is made of a Service that is nowhere")
	}
	if k.succeeds(t, export("elsewhere", "-C", "c1,c2")...); !made("elsewhere") {
		t.Error("no ServiceExport of a Service that c2 has")
	}

	join("c3")
	out := k.succeeds(t, export("web", "-C", "c1,c3")...)
	if !strings.Contains(out, "could not be asked") || !strings.Contains(out, "c3: cluster proxy") || !made("web") {
		t.Error("a cluster that cannot be asked is not named, or the export is refused")
	}
	k.succeeds(t, export("later", "-C", "c1", "--allow-missing")...)
	for _, name := range []string{"elsewhere", "web", "later"} {
		k.succeeds(t, "unexport", name, "-n", "shop")
	}
}

// finish runs a command in the background and returns what tells whether it has ended, with its output.
func (k *karmada) finish(t *testing.T, args ...string) <-chan string {
	t.Helper()
	done := make(chan string, 1)
	go func() {
		out, code := k.plugin(t, args...)
		done <- fmt.Sprintf("exit code %d\n%s", code, out)
	}()
	return done
}

// TestUnexportReturnsWhenKarmadaIsDone: not before binding and Work are gone, with Karmada's finalizers taken off by
// the test.
func TestUnexportReturnsWhenKarmadaIsDone(t *testing.T) {
	k := newKarmada(t)
	k.ready(t, "c1", "c2")
	k.namespace(t, "waits", "karmada-es-c1", "karmada-es-c3")
	k.succeeds(t, "export", "web", "-n", "waits", "-C", "c1")
	name := names.GenerateWorkName("ServiceExport", "web", "waits")
	binding := &workv1alpha2.ResourceBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "waits", Name: names.GenerateBindingName("ServiceExport", "web"),
			Finalizers: []string{"test/hold"}},
	}
	held := func(cluster string) *workv1alpha1.Work {
		return &workv1alpha1.Work{
			ObjectMeta: metav1.ObjectMeta{Namespace: names.GenerateExecutionSpaceName(cluster), Name: name,
				Finalizers: []string{"test/hold"}},
		}
	}
	work, lost := held("c1"), held("c3")
	k.create(t, binding, work, lost)
	release := func(object client.Object) {
		t.Helper()
		k.get(t, object)
		object.SetFinalizers(nil)
		if err := k.Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		_ = k.Delete(t.Context(), object)
	}
	for _, object := range []client.Object{binding, work, lost} {
		if err := k.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}

	k.fails(t, []string{"it is still in: c1", "--wait=false"}, "unexport", "web", "-n", "waits", "--timeout=5s")
	k.succeeds(t, "unexport", "web", "-n", "waits", "--wait=false")
	done := k.finish(t, "unexport", "web", "-n", "waits")
	for _, object := range []client.Object{binding, work} {
		select {
		case out := <-done:
			t.Fatalf("unexport returned while %T was there: %s", object, out)
		case <-time.After(600 * time.Millisecond):
		}
		release(object)
	}
	// c3, which Karmada does not reach, is named and not waited for.
	if out := <-done; !strings.Contains(out, "exit code 0") || !strings.Contains(out, "c3 is not ready") {
		t.Errorf("unexport: %s", out)
	}
	release(lost)
}

// ready plays Karmada's view of clusters that it reaches.
func (k *karmada) ready(t *testing.T, clusters ...string) {
	t.Helper()
	for _, name := range clusters {
		c := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		k.get(t, c)
		c.Status.Conditions = []metav1.Condition{condition(clusterv1alpha1.ClusterConditionReady,
			metav1.ConditionTrue, "Ready", "")}
		if err := k.Status().Update(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
}

// namespace creates namespaces that later tests may find.
func (k *karmada) namespace(t *testing.T, all ...string) {
	t.Helper()
	for _, name := range all {
		err := k.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
}

func TestAMembersExportIsNotMadeOnTopOfKarmadas(t *testing.T) {
	k := newKarmada(t)
	k.namespace(t, "taken")
	k.create(t,
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "taken", Name: "web"},
			Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}},
		&mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
			Namespace: "taken", Name: "web", Labels: map[string]string{labelManagedBy: exportedBy},
			Annotations: map[string]string{workv1alpha2.WorkNameAnnotation: "web-1"},
		}})
	in := []string{"web", "-n", "taken", "--context", "lost-member"}
	k.fails(t, []string{"Karmada put it there", "unexport web -n taken"}, append([]string{"export"}, in...)...)
	k.fails(t, []string{"Karmada put it there", "unexport web -n taken"}, append([]string{"unexport"}, in...)...)
	export := &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "taken", Name: "web"}}
	k.get(t, export)
}

func TestExportNeedsItsNamespaceOrCreatesIt(t *testing.T) {
	k := newKarmada(t)
	const missing = "made-by-export"
	k.fails(t, []string{"namespace " + missing + " on the Karmada API", "--create-namespace"}, "export", "web", "-n",
		missing, "-C", "c1")
	k.succeeds(t, "export", "web", "-n", missing, "-C", "c1", "--create-namespace")
	k.get(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: missing}})
	k.get(t, &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: missing, Name: "web"}})
}

func TestAnExportIsDoneWhenEachClusterExports(t *testing.T) {
	row := func(cluster string, state exportState, message string) exportRow {
		return exportRow{Cluster: cluster, State: state, Message: message}
	}
	c1, c2 := row("c1", stateExported, ""), row("c2", stateExported, "")
	absent, pending := row("c2", stateFailed, "NoService: there is none"), row("c2", statePending, "not yet")
	for name, tc := range map[string]struct {
		rows         []exportRow
		wanted, lost []string
		want         exportProgress
		done         bool
	}{
		"all wanted export": {rows: []exportRow{c1, c2}, wanted: []string{"c1", "c2"},
			want: exportProgress{exported: 2}, done: true},
		"one is not scheduled yet": {rows: []exportRow{c1}, wanted: []string{"c1", "c2"},
			want: exportProgress{exported: 1, missing: []string{"c2: Karmada has not scheduled the ServiceExport there yet"}}},
		"one is pending": {rows: []exportRow{c1, pending}, wanted: []string{"c1", "c2"},
			want: exportProgress{exported: 1, missing: []string{"c2: not yet"}}},
		"one has no Service, and must": {rows: []exportRow{c1, absent}, wanted: []string{"c1", "c2"},
			want: exportProgress{exported: 1, missing: []string{"c2: NoService: there is none"}, failed: true}},
		"one has no Service, and may not": {rows: []exportRow{c1, absent}, want: exportProgress{exported: 1}, done: true},
		"nobody has the Service": {rows: []exportRow{absent},
			want: exportProgress{missing: []string{"c2: NoService: there is none"}, failed: true}},
		"Karmada does not reach one": {rows: []exportRow{c1, pending}, wanted: []string{"c1", "c2"},
			lost: []string{"c2"}, want: exportProgress{exported: 1}, done: true},
		"nothing is scheduled": {want: exportProgress{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := fleetProgress(tc.rows, tc.wanted, tc.lost)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(exportProgress{})); diff != "" || got.done() != tc.done {
				t.Errorf("done %v, want %v (-want +got):\n%s", got.done(), tc.done, diff)
			}
		})
	}
}
