// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/matrix"
	"github.com/sealane-io/sealane/internal/apiserver"
	"github.com/sealane-io/sealane/internal/probe"
)

// verified is a Karmada with two members, each an API server of its own whose kubelet is played.
type verified struct {
	*karmada
	members map[string]*api
	// answer is what a client in a member finds.
	answer func(cluster, pod string, c probe.Check) probe.Result
	// measured is what a client measures of a path.
	measured func(probe.Path) probe.Summary
	// holds says that a pod does not start, fails that it fails at once.
	holds, fails func(pod *corev1.Pod) bool

	mutex sync.Mutex
	// pods, exports and namespaces are all that were made by verify.
	pods       map[string]*corev1.Pod
	exports    map[string]*mcsv1alpha1.ServiceExport
	namespaces map[string]*corev1.Namespace
}

func newVerified(t *testing.T) *verified {
	t.Helper()
	never := func(*corev1.Pod) bool { return false }
	v := &verified{karmada: newKarmada(t), members: map[string]*api{}, holds: never, fails: never,
		pods: map[string]*corev1.Pod{}, exports: map[string]*mcsv1alpha1.ServiceExport{},
		namespaces: map[string]*corev1.Namespace{},
		answer: func(_, _ string, c probe.Check) probe.Result {
			return probe.Result{ID: c.ID, OK: true, Tries: 1, Took: time.Millisecond}
		},
	}
	v.install(t)
	config := clientcmdapi.NewConfig()
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: server.BearerToken}
	var crds []string
	for _, find := range []func() (string, error){apiserver.CRDs, apiserver.MCSCRDs} {
		path, err := find()
		if err != nil {
			t.Fatal(err)
		}
		crds = append(crds, path)
	}
	add := func(name, host string) {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: host, InsecureSkipTLSVerify: true}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: "admin"}
	}
	add("karmada", server.Host)
	for _, name := range []string{"c1", "c2"} {
		a, err := newAPI(apiserver.Start(t, crds...), name)
		if err != nil {
			t.Fatal(err)
		}
		add(name, a.config.Host)
		v.members[name] = a
		v.populate(t, a)
	}
	for _, a := range v.members {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		go controllerManager(ctx, a)
		go v.kubelet(ctx, a)
	}
	v.report(t, []string{"c1", "c2"}, connected()...)
	v.kubeconfig = filepath.Join(t.TempDir(), "members.kubeconfig")
	if err := clientcmd.WriteToFile(*config, v.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return v
}

// populate makes a gateway and a worker with their node agents, and a node that is not to be used.
func (v *verified) populate(t *testing.T, a *api) {
	t.Helper()
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "pull"}}
	v.createAt(t, a, system, secret)
	for _, name := range []string{"cordoned", "gw", "wk"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.NodeSpec{Unschedulable: name == "cordoned"}}
		agent := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "sealane-node-" + name,
				Labels: map[string]string{"app.kubernetes.io/name": "sealane-node"}},
			Spec: corev1.PodSpec{NodeName: name, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
				Containers: []corev1.Container{{Name: "sidecar", Image: "registry.example.org/injected"},
					{Name: nodeContainer, Image: "registry.example.org/agent:v1"}}},
		}
		v.createAt(t, a, node, agent)
		node.Status.Conditions = []corev1.NodeCondition{ready}
		agent.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		for _, object := range []client.Object{node, agent} {
			if err := a.Status().Update(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
	}
	v.createAt(t, a, &v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "gw"}})
}

func (v *verified) createAt(t *testing.T, a *api, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := a.Create(t.Context(), object); err != nil {
			t.Fatalf("create %T %s: %v", object, object.GetName(), err)
		}
	}
}

// kubelet plays those of all nodes of a member, and takes down what verify makes, until ctx ends.
func (v *verified) kubelet(ctx context.Context, a *api) {
	_ = until(ctx, func(ctx context.Context) (bool, error) {
		var namespaces corev1.NamespaceList
		var pods corev1.PodList
		var exports mcsv1alpha1.ServiceExportList
		for _, list := range []client.ObjectList{&namespaces, &pods, &exports} {
			_ = a.List(ctx, list, client.HasLabels{labelTrial})
		}
		v.mutex.Lock()
		defer v.mutex.Unlock()
		for i := range namespaces.Items {
			v.namespaces[a.context+"/"+namespaces.Items[i].Name] = &namespaces.Items[i]
		}
		for i := range exports.Items {
			v.exports[a.context+"/"+exports.Items[i].Name] = &exports.Items[i]
			for name, other := range v.members {
				if name != a.context {
					_ = other.Create(ctx, importOf(&exports.Items[i]))
				}
			}
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			v.pods[a.context+"/"+pod.Name] = pod
			switch {
			case pod.Status.Phase != corev1.PodPending && pod.Status.Phase != "" || v.holds(pod):
				continue
			case v.fails(pod):
				pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "OutOfpods"
			case strings.HasPrefix(pod.Name, "server-"):
				pod.Status.Phase = corev1.PodRunning
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				pod.Status.PodIP = "10.8.0.2"
				pod.Status.PodIPs = []corev1.PodIP{{IP: "10.8.0.2"}}
			default:
				pod.Status.Phase = corev1.PodSucceeded
			}
			_ = a.Status().Update(ctx, pod)
		}
		return false, nil
	})
}

// importOf is what the cluster agent of another member makes of an export.
func importOf(e *mcsv1alpha1.ServiceExport) *mcsv1alpha1.ServiceImport {
	return &mcsv1alpha1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name},
		Spec: mcsv1alpha1.ServiceImportSpec{Type: mcsv1alpha1.ClusterSetIP,
			Ports: []mcsv1alpha1.ServicePort{{Port: probe.Port}}}}
}

// logs plays the clients: the checks are arguments of their pods.
func (v *verified) logs(ctx context.Context, member *api, key client.ObjectKey) (io.ReadCloser, error) {
	var pod corev1.Pod
	if err := member.Get(ctx, key, &pod); err != nil {
		return nil, err
	}
	var log bytes.Buffer
	for _, arg := range pod.Spec.Containers[0].Args {
		if p, err := probe.ParsePath(arg); err == nil {
			line, _ := json.Marshal(v.measured(p))
			fmt.Fprintf(&log, "%s\n", line)
		}
		if c, err := probe.ParseCheck(arg); err == nil {
			line, _ := json.Marshal(v.answer(member.context, pod.Name, c))
			fmt.Fprintf(&log, "%s\n", line)
		}
	}
	return io.NopCloser(&log), nil
}

// verify runs the command.
func (v *verified) verify(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return v.verifyWithin(t.Context(), t, args...)
}

func (v *verified) verifyWithin(ctx context.Context, t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	o := &options{invocation: "kubectl karmada sealane", kubeconfig: v.kubeconfig, karmadaContext: "karmada",
		timeout: 3 * time.Minute, IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}}
	command := &verify{options: o, logs: v.logs, output: outputTable, memberTimeout: 20 * time.Second}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "junit":
			command.junit = value
		case "output":
			command.output = value
		case "clusters":
			command.clusters = strings.Split(value, ",")
		default:
			t.Fatal(arg)
		}
	}
	err := command.run(ctx)
	t.Logf("verify %v → %v\n%s", args, err, out.String())
	return out.String(), err
}

// left are the namespaces of verify that there are in all members.
func (v *verified) left(t *testing.T) []string {
	t.Helper()
	var left []string
	for _, cluster := range []string{"c1", "c2"} {
		var namespaces corev1.NamespaceList
		if err := v.members[cluster].List(t.Context(), &namespaces); err != nil {
			t.Fatal(err)
		}
		for _, n := range namespaces.Items {
			if strings.HasPrefix(n.Name, namePrefix) {
				left = append(left, cluster+"/"+n.Name)
			}
		}
	}
	return left
}

func TestVerify(t *testing.T) {
	v := newVerified(t)
	t.Run("all is well", v.allIsWell)
	t.Run("what fails is told", v.whatFailsIsTold)
	t.Run("a pod that does not start", v.aPodThatDoesNotStart)
	t.Run("interrupted", v.interrupted)
	t.Run("leftovers", v.leftovers)
	t.Run("bench", v.bench)
	t.Run("refused before anything is made", v.refused)
}

func (v *verified) allIsWell(t *testing.T) {
	report := filepath.Join(t.TempDir(), "verify.xml")
	out, err := v.verify(t, "junit="+report)
	if err != nil {
		t.Fatal(err)
	}
	// Each of 4 clients in each of 2 members asks 2 servers for 5 things in 4 ways.
	for _, want := range []string{"FROM", "CLUSTERSETIP", "c1 worker host", "320 of 320 checks ok, 0 skipped", "removed"} {
		if !strings.Contains(out, want) {
			t.Errorf("the table has no %q", want)
		}
	}
	if strings.Contains(out, "FAIL") {
		t.Error("something fails")
	}
	if xml, err := os.ReadFile(report); err != nil || !strings.Contains(string(xml), `tests="320" failures="0"`) {
		t.Errorf("report: %v\n%.300s", err, xml)
	}
	if left := v.left(t); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if len(v.pods) != 12 || len(v.exports) != 8 || len(v.namespaces) != 2 {
		t.Errorf("%d pods, %d exports, %d namespaces; expected 12, 8, 2", len(v.pods), len(v.exports), len(v.namespaces))
	}
	for name, pod := range v.pods {
		v.harmless(t, name, pod)
	}
	for name, e := range v.exports {
		if e.Annotations[v1alpha1.AnnotationImportClusters] != "c1,c2" {
			t.Errorf("export %s: %v", name, e.Annotations)
		}
	}
	for name, n := range v.namespaces {
		until, err := time.Parse(time.RFC3339, n.Annotations[annotationUntil])
		if err != nil || n.Labels["pod-security.kubernetes.io/enforce"] == "" || time.Until(until) > lifetime {
			t.Errorf("namespace %s: %v %v", name, n.Labels, n.Annotations)
		}
	}
}

// harmless is what a pod must not be allowed, whichever it is.
func (v *verified) harmless(t *testing.T, name string, pod *corev1.Pod) {
	t.Helper()
	c, s := pod.Spec.Containers[0].SecurityContext, pod.Spec.SecurityContext
	restricted := s.RunAsNonRoot != nil && *s.RunAsNonRoot && s.SeccompProfile != nil && c.Privileged == nil &&
		c.AllowPrivilegeEscalation != nil && !*c.AllowPrivilegeEscalation && c.ReadOnlyRootFilesystem != nil &&
		slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) && len(c.Capabilities.Add) == 0
	if !restricted || len(pod.Spec.Volumes) > 0 {
		t.Errorf("%s may do more than it has to: %+v %+v %v", name, s, c, pod.Spec.Volumes)
	}
	if pod.Spec.HostNetwork != strings.Contains(name, "/host-") || pod.Spec.HostPID || pod.Spec.HostIPC {
		t.Errorf("%s has the node's network: %v", name, pod.Spec.HostNetwork)
	}
	if pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken {
		t.Errorf("%s has a token", name)
	}
	if d := pod.Spec.ActiveDeadlineSeconds; d == nil || *d > 600 || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("%s does not end by itself", name)
	}
	if image := pod.Spec.Containers[0].Image; image != "registry.example.org/agent:v1" {
		t.Errorf("%s runs %s", name, image)
	}
	want := map[bool]string{true: "gw", false: "wk"}[strings.HasSuffix(name, "gateway")]
	if pod.Spec.NodeName != want || len(pod.Spec.ImagePullSecrets) != 1 {
		t.Errorf("%s is on %s with %v", name, pod.Spec.NodeName, pod.Spec.ImagePullSecrets)
	}
}

func (v *verified) whatFailsIsTold(t *testing.T) {
	answer := v.answer
	t.Cleanup(func() { v.answer = answer })
	v.answer = func(cluster, pod string, c probe.Check) probe.Result {
		if cluster == "c1" && pod == "pod-worker" && strings.HasPrefix(c.Network, "udp") {
			return probe.Result{ID: c.ID, Error: "no answer"}
		}
		return answer(cluster, pod, c)
	}
	out, err := v.verify(t, "output=json")
	if err == nil || !strings.Contains(err.Error(), "20 of 320 checks failed") {
		t.Errorf("got %v", err)
	}
	var document struct {
		Verify []matrix.Check `json:"verify"`
	}
	if err := json.NewDecoder(strings.NewReader(out[strings.Index(out, "{"):])).Decode(&document); err != nil {
		t.Fatal(err)
	}
	for _, c := range document.Verify {
		broken := c.From.Cluster == "c1" && c.From.Kind == matrix.Pod && c.From.Role == matrix.Worker && c.Protocol == "udp"
		if broken != (c.Verdict == matrix.Failed) {
			t.Errorf("%s is %s", &c, c.Verdict)
		}
	}
	if left := v.left(t); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func (v *verified) aPodThatDoesNotStart(t *testing.T) {
	never := v.fails
	t.Cleanup(func() { v.fails = never })
	v.fails = func(pod *corev1.Pod) bool {
		return pod.Name == "server-worker" && pod.Spec.Containers[0].Args[2] == "--name=c2/worker"
	}
	out, err := v.verify(t)
	if err == nil || !strings.Contains(err.Error(), "80 of 320 checks failed") ||
		!strings.Contains(out, "the server did not start: OutOfpods") {
		t.Errorf("got %v", err)
	}
}

func (v *verified) interrupted(t *testing.T) {
	never := v.holds
	t.Cleanup(func() { v.holds = never })
	v.holds = func(*corev1.Pod) bool { return true }
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began := time.Now()
	go func() {
		//nolint:contextcheck // it looks on when the command is interrupted
		_ = until(ctx, func(context.Context) (bool, error) { return len(v.left(t)) == 2, nil })
		stop()
	}()
	_, err := v.verifyWithin(ctx, t)
	if err == nil || !strings.Contains(err.Error(), "interrupted") || time.Since(began) > startPatience {
		t.Errorf("got %v after %s", err, time.Since(began))
	}
	if left := v.left(t); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	// The same by the signal that Ctrl-C sends.
	go func() {
		//nolint:contextcheck // as above
		_ = until(t.Context(), func(context.Context) (bool, error) { return len(v.left(t)) == 2, nil })
		_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
	}()
	if out, code := v.plugin(t, "verify"); code != 1 || !strings.Contains(out, "interrupted") {
		t.Errorf("exit code %d", code)
	}
	if left := v.left(t); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func (v *verified) leftovers(t *testing.T) {
	at := func(name string, until time.Duration, label bool) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name,
			Annotations: map[string]string{annotationUntil: time.Now().Add(until).UTC().Format(time.RFC3339)}}}
		if label {
			n.Labels = map[string]string{labelTrial: "true"}
		}
		return n
	}
	v.createAt(t, v.members["c1"], at(namePrefix+"old", -time.Second, true), at(namePrefix+"running", time.Hour, true),
		at(namePrefix+"users", -time.Hour, false), at("labelled", -time.Hour, true))
	if _, err := v.verify(t); err != nil {
		t.Fatal(err)
	}
	want := []string{"c1/" + namePrefix + "running", "c1/" + namePrefix + "users"}
	if left := v.left(t); !slices.Equal(left, want) {
		t.Errorf("left are %v, expected %v", left, want)
	}
	if err := removeVerified(t.Context(), v.members["c1"], nil); err != nil {
		t.Fatal(err)
	}
	if left := v.left(t); !slices.Equal(left, want[1:]) {
		t.Errorf("uninstall leaves %v, expected %v", left, want[1:])
	}
	labelled := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "labelled"}}
	if err := v.members["c1"].Get(t.Context(), client.ObjectKeyFromObject(labelled), labelled); err != nil {
		t.Error(err)
	}
}

func (v *verified) refused(t *testing.T) {
	for args, want := range map[string]string{
		"clusters=c1":    "two members or more",
		"clusters=c1,c9": `"c9" to be a member`,
		"output=xml":     "-o to be table",
	} {
		if _, err := v.verify(t, args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, expected %q", args, err, want)
		}
	}
	v.report(t, []string{"c3"}, connected()...)
	if _, err := v.verify(t); err == nil || !strings.Contains(err.Error(), "context named c3") {
		t.Errorf("a member that is not reached: %v", err)
	}
	if left := v.left(t); slices.ContainsFunc(left, func(n string) bool { return strings.Contains(n, "c2/") }) {
		t.Errorf("made: %v", left)
	}
}
