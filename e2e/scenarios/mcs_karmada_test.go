// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/sealane"
)

// spread makes a Deployment, its Service web and a ServiceExport on the Karmada API, and the one policy that
// takes all of them to some clusters.
func (s site) spread(clusters ...string) {
	s.Helper()
	s.create(lab.ContextKarmada,
		deployment(),
		service(func(web *corev1.Service) { web.Spec.Selector = map[string]string{"app": "web"} }),
		&mcsv1alpha1.ServiceExport{ObjectMeta: named("web")},
		policy(clusters...))
}

// karmadaSite is a namespace on the Karmada API, which Karmada takes to the members.
func karmadaSite(t *testing.T) site {
	t.Helper()
	s := newSite(t, lab.ContextKarmada)
	for _, cluster := range members() {
		a := s.api(cluster)
		eventually(t, patience, func(ctx context.Context) error {
			return a.Get(ctx, client.ObjectKey{Name: s.namespace}, &corev1.Namespace{})
		})
	}
	return s
}

// deployment of web has two pods that, told to end, serve on until everybody knows.
func deployment() *appsv1.Deployment {
	replicas, grace, pods := int32(2), int64(10), whereamiPods("web")
	pods.Spec.TerminationGracePeriodSeconds = &grace
	pods.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 4}}}
	return &appsv1.Deployment{ObjectMeta: named("web"), Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Template: pods,
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}}
}

func policy(clusters ...string) *policyv1alpha1.PropagationPolicy {
	return &policyv1alpha1.PropagationPolicy{ObjectMeta: named("web"), Spec: policyv1alpha1.PropagationSpec{
		ResourceSelectors: []policyv1alpha1.ResourceSelector{
			{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			{APIVersion: "v1", Kind: "Service", Name: "web"},
			{APIVersion: mcsv1alpha1.GroupVersion.String(), Kind: "ServiceExport", Name: "web"},
		},
		Placement: policyv1alpha1.Placement{ClusterAffinity: &policyv1alpha1.ClusterAffinity{ClusterNames: clusters}},
	}}
}

// TestAnExportMovesWithItsService: Karmada moves all of it to another cluster while a client asks all the time.
// Between the end of the old export and the start of the new pods nobody answers; but nothing hangs.
func TestAnExportMovesWithItsService(t *testing.T) {
	s := karmadaSite(t)
	s.spread("c2")
	s.sources("c1", map[string]int{"c2": 2})
	shares(t, "c1", "http://"+s.name(), 10, "c2")

	client := asking(t, "c1", s.name())
	change(s, lab.ContextKarmada, policy(), func(p *policyv1alpha1.PropagationPolicy) {
		p.Spec.Placement.ClusterAffinity.ClusterNames = []string{"c3"}
	})
	begin := time.Now()
	s.sources("c1", map[string]int{"c3": 2})
	t.Logf("moved in %s", time.Since(begin))
	for _, cluster := range []string{"c1", "c2", "c3"} {
		s.imported(from("c3"), cluster)
		shares(t, cluster, "http://"+s.name(), 10, "c3")
	}
	unknown(t, "c1", s.name("c2"))
	answers, errors := client.end()
	t.Logf("%d answers, %d errors", len(answers), len(errors))
	hung := slices.DeleteFunc(slices.Clone(errors), func(e string) bool { return !strings.Contains(e, "deadline") && !strings.Contains(e, "Timeout") })
	if len(hung) > 2 {
		t.Errorf("expected requests to be refused at once but those on their way, found %d that hung: %v", len(hung), hung)
	}
	if last := answers[len(answers)-1]; last.Pod == "" || len(answers) < len(errors) {
		t.Errorf("expected more answers than errors, found %d and %d: %v", len(answers), len(errors), errors)
	}
}

// TestAnExportMovesBetweenServers: the servers run in both clusters, so only the export moves.
func TestAnExportMovesBetweenServers(t *testing.T) {
	s := karmadaSite(t)
	s.serve("c2")
	s.serve("c3")
	s.create(lab.ContextKarmada, &mcsv1alpha1.ServiceExport{ObjectMeta: named("web")}, policy("c2"))
	shares(t, "c1", "http://"+s.name(), 10, "c2")
	client := asking(t, "c1", s.name())
	change(s, lab.ContextKarmada, policy(), func(p *policyv1alpha1.PropagationPolicy) {
		p.Spec.Placement.ClusterAffinity.ClusterNames = []string{"c3"}
	})
	s.imported(from("c3"), members()...)
	shares(t, "c1", "http://"+s.name(), 10, "c3")
	answers, errors := client.end()
	t.Logf("%d answers, %d errors", len(answers), len(errors))
	// It asks every 50 ms.
	if len(errors) > 40 {
		t.Errorf("expected at most 2 s without an answer, found %d errors: %v", len(errors), errors)
	}
}

// TestTheExportOnKarmadaSaysHowEveryClusterDoes: exported, pending or failed, and why.
func TestTheExportOnKarmadaSaysHowEveryClusterDoes(t *testing.T) {
	s := karmadaSite(t)
	s.serve("c2")
	s.create(lab.ContextKarmada, &mcsv1alpha1.ServiceExport{ObjectMeta: named("web")}, policy("c2", "c3"))
	s.says(mcs.ServiceExportConditionReady, metav1.ConditionFalse, "c2: exported", "c3: pending")
	s.says(mcs.ServiceExportConditionValid, metav1.ConditionFalse, "c3: there is no Service web")
	s.serve("c3", ports(port("http", 8000)))
	s.says(mcs.ServiceExportConditionReady, metav1.ConditionTrue, "c2: exported", "c3: exported")
	s.says(mcs.ServiceExportConditionConflict, metav1.ConditionTrue, "ports")
	change(s, "c3", service(), ports(port("http", 80)))
	s.says(mcs.ServiceExportConditionConflict, metav1.ConditionFalse, "")

	// Karmada's own import of the same service makes another one of it, which is said as long as it is so.
	s.create(lab.ContextKarmada, &mcsv1alpha1.ServiceImport{ObjectMeta: named("web"), Spec: mcsv1alpha1.ServiceImportSpec{
		Type: mcsv1alpha1.ClusterSetIP, Ports: []mcsv1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
	}})
	s.says(mcs.ServiceExportConditionConflict, metav1.ConditionTrue, "derived-web")
	shares(t, "c1", "http://"+s.name(), 40, "c2", "c3")
	s.delete(lab.ContextKarmada, &mcsv1alpha1.ServiceImport{ObjectMeta: named("web")})
	s.says(mcs.ServiceExportConditionConflict, metav1.ConditionFalse, "")
}

// says waits for a condition of web's ServiceExport on the Karmada API, with words in its message.
func (s site) says(kind mcs.ServiceExportConditionType, status metav1.ConditionStatus, words ...string) {
	s.Helper()
	settled(s, lab.ContextKarmada, &mcsv1alpha1.ServiceExport{ObjectMeta: named("web")}, func(e *mcsv1alpha1.ServiceExport) error {
		c := meta.FindStatusCondition(e.Status.Conditions, string(kind))
		if c == nil || c.Status != status {
			return fmt.Errorf("expected %s to be %s, found %+v", kind, status, e.Status.Conditions)
		}
		for _, word := range words {
			if !strings.Contains(c.Message, word) {
				return fmt.Errorf("expected %q in %s, found %s", word, kind, c.Message)
			}
		}
		return nil
	})
}

// TestKarmadasOwnServiceControllersMayBeOff: by default they are on, and all other tests run beside them.
func TestKarmadasOwnServiceControllersMayBeOff(t *testing.T) {
	const process = "karmada-controller-manager"
	restart := func(ctx context.Context, argv []string) error {
		if err := shared.Lab.StopProcess(ctx, process); err != nil {
			return err
		}
		return shared.Lab.Run(process, argv...)
	}
	argv, err := shared.Lab.Argv(process)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := restart(ctx, argv); err != nil {
			t.Error(err)
		}
	})
	off := "--controllers=*,-serviceExport,-serviceImport,-endpointSlice,-endpointsliceCollect,-endpointsliceDispatch,-multiclusterservice"
	if err := restart(t.Context(), append(slices.Clone(argv), off)); err != nil {
		t.Fatal(err)
	}
	s := karmadaSite(t)
	s.spread("c3")
	s.sources("c1", map[string]int{"c3": 2})
	shares(t, "c1", "http://"+s.name(), 10, "c3")
	s.says(mcs.ServiceExportConditionReady, metav1.ConditionTrue, "c3: exported")
}

// asker is a pod that asks for a name all the time.
type asker struct {
	t     *testing.T
	ended chan string
}

// asking starts one for 15 s: each request with a look-up and a connection of its own.
func asking(t *testing.T, cluster, name string) asker {
	t.Helper()
	a := asker{t, make(chan string, 1)}
	go func() {
		// The last request's failure is one of those in the output.
		out, _ := in(t.Context(), cluster, clientOf(cluster), "http", "-count=300", "-interval=50ms", "-timeout=2s", "http://"+name)
		a.ended <- out
	}()
	return a
}

// end waits for its end.
func (a asker) end() (answers []sealane.Answer, errors []string) {
	a.t.Helper()
	for line := range strings.SplitSeq(<-a.ended, "\n") {
		if answer, err := sealane.ParseAnswer([]byte(line)); err == nil {
			answers = append(answers, answer)
		} else if line != "" {
			errors = append(errors, line)
		}
	}
	if len(answers) == 0 {
		a.t.Fatalf("expected some answers, found %v", errors)
	}
	return answers, errors
}
