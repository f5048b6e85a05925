// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/sealane"
	"github.com/sealane-io/sealane/e2e/suite"
)

// TestAnExportMovesWithItsService: Karmada moves all of it to another cluster while a client asks all the time.
// Between the end of the old export and the start of the new pods nobody answers; but nothing hangs. What a server was
// answering when it ended is cut off, at most once for each of the two.
func TestAnExportMovesWithItsService(t *testing.T) {
	s := suite.NewKarmadaNamespace(t)
	s.Spread("c2")
	s.WaitEndpoints("c1", map[string]int{"c2": 2})
	suite.AnsweredByAll(t, "c1", "http://"+s.DNSName(), 10, "c2")

	before := addresses(s)
	requests := asking(t, "c1", s.DNSName())
	suite.Update(s, lab.ContextKarmada, suite.SpreadPolicy(), func(p *policyv1alpha1.PropagationPolicy) {
		p.Spec.Placement.ClusterAffinity.ClusterNames = []string{"c3"}
	})
	begin := time.Now()
	s.WaitEndpoints("c1", map[string]int{"c3": 2})
	t.Logf("moved in %s", time.Since(begin))
	for _, cluster := range []string{"c1", "c2", "c3"} {
		s.WaitImported(suite.ExportedBy("c3"), cluster)
		suite.AnsweredByAll(t, cluster, "http://"+s.DNSName(), 10, "c3")
	}
	suite.NoSuchName(t, "c1", s.DNSName("c2"))
	answers, failures := requests.end()
	t.Logf("%d answers, %d errors", len(answers), len(failures))
	before.stay(s)
	cut := slices.DeleteFunc(slices.Clone(failures), func(e string) bool { return !cutOff(e) })
	failures = slices.DeleteFunc(failures, cutOff)
	hung := slices.DeleteFunc(slices.Clone(failures), func(e string) bool { return !timedOut(e) })
	lookups := slices.DeleteFunc(slices.Clone(failures), func(e string) bool { return !strings.Contains(e, "lookup ") })
	other := slices.DeleteFunc(slices.Clone(failures), serverNotUp)
	if len(lookups) > 0 {
		t.Errorf("expected the name to stay all the time, found %d look-ups that failed: %v", len(lookups), lookups)
	}
	if len(other) > 0 {
		t.Errorf("expected no errors but of servers that are not up, found %d: %v", len(other), other)
	}
	if len(cut) > 2 {
		t.Errorf("expected each of two servers to cut one request off at most, found %d: %v", len(cut), cut)
	}
	if len(hung) > 2 {
		t.Errorf("expected requests to be refused at once but those on their way, found %d that hung: %v", len(hung), hung)
	}
	if last := answers[len(answers)-1]; !strings.HasPrefix(last.Node, "c3-") {
		t.Errorf("expected c3 to answer in the end, found %+v after %v", last, failures)
	}
}

// TestAnExportMovesBetweenServers: the servers run in both clusters, so only the export moves.
func TestAnExportMovesBetweenServers(t *testing.T) {
	s := suite.NewKarmadaNamespace(t)
	s.Serve("c2")
	s.Serve("c3")
	s.Create(lab.ContextKarmada, &mcsv1alpha1.ServiceExport{ObjectMeta: suite.Named("web")}, suite.SpreadPolicy("c2"))
	suite.AnsweredByAll(t, "c1", "http://"+s.DNSName(), 10, "c2")
	before := addresses(s)
	requests := asking(t, "c1", s.DNSName())
	suite.Update(s, lab.ContextKarmada, suite.SpreadPolicy(), func(p *policyv1alpha1.PropagationPolicy) {
		p.Spec.Placement.ClusterAffinity.ClusterNames = []string{"c3"}
	})
	s.WaitImported(suite.ExportedBy("c3"), suite.Members()...)
	suite.AnsweredByAll(t, "c1", "http://"+s.DNSName(), 10, "c3")
	answers, failures := requests.end()
	t.Logf("%d answers, %d errors", len(answers), len(failures))
	if len(failures) > 0 {
		t.Errorf("expected no request to fail, as both clusters have ready servers, found %d errors: %v",
			len(failures), failures)
	}
	before.stay(s)
}

// address is what web has in an importer: its ServiceImport and the derived Service, which keep their UIDs unless they
// are deleted in between, and the ClusterSetIP, which is both the import's and the Service's.
type address struct {
	serviceImport, derived types.UID
	ip                     string
}

// addressByCluster is web's address in every member.
type addressByCluster map[string]address

func addresses(s suite.Namespace) addressByCluster {
	s.Helper()
	out := addressByCluster{}
	for _, cluster := range suite.Members() {
		i := s.WaitImported(withAddress, cluster)
		d := derived(s, cluster)
		if d == nil || d.Spec.ClusterIP != i.Spec.IPs[0] {
			s.Fatalf("%s: expected a derived Service with address %v, found %+v", cluster, i.Spec.IPs, d)
		}
		out[cluster] = address{i.UID, d.UID, i.Spec.IPs[0]}
	}
	return out
}

// stay expects that name and address have been there all the time.
func (before addressByCluster) stay(s suite.Namespace) {
	s.Helper()
	for cluster, now := range addresses(s) {
		if now != before[cluster] {
			s.Errorf("%s: expected the ServiceImport and the derived Service to stay as %+v, found %+v", cluster,
				before[cluster], now)
		}
	}
}

// timedOut says that a request was sent and nobody answered it in time.
func timedOut(failure string) bool {
	return strings.Contains(failure, "deadline") || strings.Contains(failure, "Timeout") ||
		strings.Contains(failure, "i/o timeout")
}

// cutOff says that a server ended while it answered.
func cutOff(failure string) bool {
	return strings.Contains(failure, "EOF") || strings.Contains(failure, "connection reset by peer")
}

// serverNotUp says that a request failed for nobody listens where its name leads to, or not any more: kube-proxy
// refuses it for a Service without endpoints, and the node of a pod that is gone has no route to it ("network is
// unreachable"; what Sealane has no way for is "no route to host").
func serverNotUp(failure string) bool {
	return !strings.Contains(failure, "lookup ") && (strings.Contains(failure, "connection refused") ||
		strings.Contains(failure, "network is unreachable") || timedOut(failure))
}

// TestAnExportOfAMemberFollowsOneOfKarmada: what is exported in the cluster itself as soon as unexport has taken the
// export back from the Karmada API stays. With --wait=false Karmada may still be deleting it: then export is done and
// stays, or is refused and says so.
func TestAnExportOfAMemberFollowsOneOfKarmada(t *testing.T) {
	for _, cluster := range []string{"c1", "c2"} {
		for _, wait := range []string{"--wait=true", "--wait=false"} {
			t.Run(cluster+" unexport "+wait, func(t *testing.T) { exportFollows(t, cluster, wait) })
		}
	}
}

func exportFollows(t *testing.T, cluster, wait string) {
	s := suite.NewKarmadaNamespace(t)
	s.Serve(cluster)
	service := []string{"web", "-n", s.Name}
	suite.Plugin(t, append([]string{"export", "-C", cluster}, service...)...)
	suite.Plugin(t, append([]string{"unexport", wait}, service...)...)
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		out, err := suite.TryPlugin(ctx, append([]string{"export", "--context", cluster}, service...)...)
		if err != nil && (wait == "--wait=true" || !strings.Contains(out, "Karmada put it there")) {
			t.Fatal(err)
		}
		return err
	})
	export := &mcs.ServiceExport{ObjectMeta: suite.Named("web")}
	suite.WaitFor(s, cluster, export, func(*mcs.ServiceExport) error { return nil })
	// Karmada is done when neither the binding nor the Work of the export that was taken back is there.
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		bindings, works := &workv1alpha2.ResourceBindingList{}, &workv1alpha1.WorkList{}
		karmada := s.API(lab.ContextKarmada)
		err := errors.Join(karmada.List(ctx, bindings, client.InNamespace(s.Name)),
			karmada.List(ctx, works))
		works.Items = slices.DeleteFunc(works.Items, func(w workv1alpha1.Work) bool {
			return w.Annotations[workv1alpha2.ResourceBindingNamespaceAnnotationKey] != s.Name
		})
		if left := len(bindings.Items) + len(works.Items); err == nil && left > 0 {
			err = fmt.Errorf("Karmada still has %d bindings and Works of %s", left, s.Name)
		}
		return err
	})
	for _, importer := range suite.Members() {
		s.WaitImported(suite.ExportedBy(cluster), importer)
		suite.AnsweredByAll(t, importer, "http://"+s.DNSName(), 10, cluster)
	}
	now := &mcs.ServiceExport{ObjectMeta: suite.Named("web")}
	suite.WaitFor(s, cluster, now, func(*mcs.ServiceExport) error { return nil })
	if now.UID != export.UID || now.DeletionTimestamp != nil {
		t.Errorf("expected the ServiceExport that export made in %s to stay, found %+v after %+v", cluster, now.ObjectMeta,
			export.ObjectMeta)
	}
}

// TestAnExportOfAServiceThatNoMemberHas is refused with the clusters that were asked, and nothing is created.
func TestAnExportOfAServiceThatNoMemberHas(t *testing.T) {
	s := suite.NewKarmadaNamespace(t)
	for found, flags := range map[string][]string{
		"none on the Karmada API, nor in c1, c2, c3": nil,
		"none on the Karmada API, nor in c2, c3":     {"-C", "c3,c2"},
	} {
		out, err := suite.TryPlugin(t.Context(), append([]string{"export", "absent", "-n", s.Name}, flags...)...)
		exit := &exec.ExitError{}
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("export %v: expected exit code 1, found %v", flags, err)
		}
		suite.Contains(t, out, found+"\n", "a Service absent in namespace "+s.Name, "--allow-missing")
	}
	left := suite.Kubectl(t, "--context", lab.ContextKarmada, "-n", s.Name,
		"get", "serviceexports.multicluster.x-k8s.io,propagationpolicies", "-o", "name")
	if left != "" {
		t.Errorf("expected nothing to be created, found %s", left)
	}
	suite.Plugin(t, "export", "absent", "-n", s.Name, "--allow-missing", "--wait=false")
	// Karmada forgets what it is about to create in a cluster while the export goes: a Work that is made as its
	// ResourceBinding ends stays, and so does the export in that cluster.
	for _, cluster := range []string{"c1", "c2", "c3"} {
		suite.WaitFor(s, cluster, &mcs.ServiceExport{ObjectMeta: suite.Named("absent")},
			func(*mcs.ServiceExport) error { return nil })
	}
	suite.Plugin(t, "unexport", "absent", "-n", s.Name)
}

// TestTheExportOnKarmadaSaysHowEveryClusterDoes: exported, pending or failed, and why.
func TestTheExportOnKarmadaSaysHowEveryClusterDoes(t *testing.T) {
	s := suite.NewKarmadaNamespace(t)
	s.Serve("c2")
	s.Create(lab.ContextKarmada, &mcsv1alpha1.ServiceExport{ObjectMeta: suite.Named("web")},
		suite.SpreadPolicy("c2", "c3"))
	s.WaitKarmadaCondition(mcs.ServiceExportConditionReady, metav1.ConditionFalse, "c2: exported", "c3: pending")
	s.WaitKarmadaCondition(mcs.ServiceExportConditionValid, metav1.ConditionFalse, "c3: there is no Service web")
	s.Serve("c3", suite.Ports(suite.Port("http", 8000)))
	s.WaitKarmadaCondition(mcs.ServiceExportConditionReady, metav1.ConditionTrue, "c2: exported", "c3: exported")
	s.WaitKarmadaCondition(mcs.ServiceExportConditionConflict, metav1.ConditionTrue, "ports")
	suite.Update(s, "c3", suite.Service(), suite.Ports(suite.Port("http", 80)))
	s.WaitKarmadaCondition(mcs.ServiceExportConditionConflict, metav1.ConditionFalse, "")

	// Karmada's own import of the same service makes another one of it, which is said as long as it is so.
	s.Create(lab.ContextKarmada, &mcsv1alpha1.ServiceImport{ObjectMeta: suite.Named("web"),
		Spec: mcsv1alpha1.ServiceImportSpec{
			Type: mcsv1alpha1.ClusterSetIP, Ports: []mcsv1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP,
				Port: 80}},
		}})
	s.WaitKarmadaCondition(mcs.ServiceExportConditionConflict, metav1.ConditionTrue, "derived-web")
	suite.AnsweredByAll(t, "c1", "http://"+s.DNSName(), 40, "c2", "c3")
	s.Delete(lab.ContextKarmada, &mcsv1alpha1.ServiceImport{ObjectMeta: suite.Named("web")})
	s.WaitKarmadaCondition(mcs.ServiceExportConditionConflict, metav1.ConditionFalse, "")
}

// TestKarmadasOwnServiceControllersMayBeOff: by default they are on, and all other tests run beside them.
func TestKarmadasOwnServiceControllersMayBeOff(t *testing.T) {
	const process = "karmada-controller-manager"
	restart := func(ctx context.Context, argv []string) error {
		if err := suite.Lab().StopProcess(ctx, process); err != nil {
			return err
		}
		return suite.Lab().Run(process, argv...)
	}
	argv, err := suite.Lab().Argv(process)
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
	off := "--controllers=*,-serviceExport,-serviceImport,-endpointSlice," +
		"-endpointsliceCollect,-endpointsliceDispatch,-multiclusterservice"
	if err := restart(t.Context(), append(slices.Clone(argv), off)); err != nil {
		t.Fatal(err)
	}
	s := suite.NewKarmadaNamespace(t)
	s.Spread("c3")
	s.WaitEndpoints("c1", map[string]int{"c3": 2})
	suite.AnsweredByAll(t, "c1", "http://"+s.DNSName(), 10, "c3")
	s.WaitKarmadaCondition(mcs.ServiceExportConditionReady, metav1.ConditionTrue, "c3: exported")
}

// asker is a pod that asks for a name all the time.
type asker struct {
	t     *testing.T
	stop  chan struct{}
	ended chan string
}

// asking starts one that goes on until its end: each request with a look-up and a connection of its own.
func asking(t *testing.T, cluster, name string) asker {
	t.Helper()
	a := asker{t, make(chan struct{}), make(chan string, 1)}
	go func() {
		all := &strings.Builder{}
		defer func() { a.ended <- all.String() }()
		for t.Context().Err() == nil {
			out, err := suite.InPod(t.Context(), cluster, suite.ClientOf(cluster), "http", "-count=20", "-interval=50ms",
				"-timeout=2s", "http://"+name)
			fmt.Fprintln(all, out)
			if err != nil { // of the last request; the output has the others
				fmt.Fprintln(all, strings.ReplaceAll(err.Error(), "\n", " "))
			}
			select {
			case <-a.stop:
				return
			default:
			}
		}
	}()
	return a
}

// end stops it after its present requests.
func (a asker) end() (answers []sealane.Answer, errors []string) {
	a.t.Helper()
	close(a.stop)
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
