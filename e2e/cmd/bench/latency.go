// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/sealane-io/sealane/e2e/lab"
)

// rest between exports keeps one from being coalesced with the one before, as a user's would not be.
const rest = 2 * time.Second

// sample is how long after the creation of a ServiceExport another cluster answered.
type sample struct{ DNS, HTTP time.Duration }

// exportLatency exports fresh services, one after the other, and watches each from a pod on a worker of
// another cluster.
func exportLatency(ctx context.Context, l *lab.Lab, exporter lab.Cluster, count int) ([]sample, error) {
	c, err := apiOf(l, exporter.Name)
	if err != nil {
		return nil, err
	}
	importer := other(l, exporter)
	objects := make([]client.Object, 0, 2*count)
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		for _, o := range objects {
			_ = client.IgnoreNotFound(c.Delete(clean, o)) // what is left goes with the lab
		}
	}()
	for i := range count {
		s := service(objectsName(exporter, i))
		if err := c.Create(ctx, s); err != nil {
			return nil, fmt.Errorf("create service: %w", err)
		}
		objects = append(objects, s)
	}
	samples := make([]sample, 0, count)
	for i := range count {
		if err := wait(ctx, rest); err != nil {
			return nil, err
		}
		export := &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Name: objectsName(exporter, i), Namespace: "sample"}}
		objects = append([]client.Object{export}, objects...)
		s, err := timeExport(ctx, l, c, importer, export)
		if err != nil {
			return nil, fmt.Errorf("export %d: %w", i+1, err)
		}
		fmt.Printf("export from %s %d/%d: dns %s, http %s\n", exporter.Name, i+1, count, s.DNS.Round(time.Millisecond), s.HTTP.Round(time.Millisecond))
		samples = append(samples, s)
	}
	return samples, nil
}

// objectsName was exported by nobody before: an import that was there lately is quicker to come back.
func objectsName(exporter lab.Cluster, i int) string {
	return fmt.Sprintf("latency-%s-%d", exporter.Name, i)
}

func apiOf(l *lab.Lab, context string) (client.Client, error) {
	config, err := l.RESTConfig(context)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), mcsv1alpha1.Install(scheme)); err != nil {
		return nil, fmt.Errorf("build scheme: %w", err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", context, err)
	}
	return c, nil
}

func other(l *lab.Lab, c lab.Cluster) lab.Cluster {
	for _, o := range l.Topology.Clusters {
		if o.Name != c.Name {
			return o
		}
	}
	return c
}

// service stands for the pods of whereami-cs.
func service(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "sample"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "whereami-cs"},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// timeExport creates the export once the watcher says that it is watching. The watcher notes the times: all
// clusters are on this machine, so there is one clock.
func timeExport(ctx context.Context, l *lab.Lab, c client.Client, importer lab.Cluster, export *mcsv1alpha1.ServiceExport) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	url := fmt.Sprintf("http://%s.%s.svc.clusterset.local", export.Name, export.Namespace)
	cmd := exec.CommandContext(ctx, l.Tool("kubectl"), "--kubeconfig="+l.Kubeconfig(), "--context="+importer.Name,
		"-n", "sample", "exec", "client-"+worker(importer), "--", "/client", "watch", url)
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.StdoutPipe()
	if err != nil {
		return sample{}, fmt.Errorf("watch: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return sample{}, fmt.Errorf("watch: %w", err)
	}
	s, err := observe(bufio.NewReader(out), func() error { return c.Create(ctx, export) })
	if err != nil {
		cancel()
	}
	if waitErr := cmd.Wait(); err == nil && waitErr != nil {
		err = waitErr
	}
	if err != nil {
		return sample{}, fmt.Errorf("watch %s: %w: %s", url, err, failure.String())
	}
	return s, nil
}

// observe reads a watcher's events. It calls create after the first.
func observe(events *bufio.Reader, create func() error) (sample, error) {
	if _, err := event(events, "watching"); err != nil {
		return sample{}, err
	}
	begin := time.Now()
	if err := create(); err != nil {
		return sample{}, fmt.Errorf("create the export: %w", err)
	}
	dns, err := event(events, "dns")
	if err != nil {
		return sample{}, err
	}
	http, err := event(events, "http")
	if err != nil {
		return sample{}, err
	}
	return sample{DNS: dns.Sub(begin), HTTP: http.Sub(begin)}, nil
}

// event reads a line "<name> <nanoseconds since 1970>".
func event(events *bufio.Reader, name string) (time.Time, error) {
	line, err := events.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return time.Time{}, fmt.Errorf("read event %s: %w", name, err)
	}
	found, value, _ := strings.Cut(strings.TrimSpace(line), " ")
	nanoseconds, parseErr := strconv.ParseInt(value, 10, 64)
	if found != name || parseErr != nil {
		return time.Time{}, fmt.Errorf("expected event %s, found %q", name, line)
	}
	return time.Unix(0, nanoseconds), nil
}

func worker(c lab.Cluster) string  { return nodeOf(c, false) }
func gateway(c lab.Cluster) string { return nodeOf(c, true) }

func nodeOf(c lab.Cluster, gateway bool) string {
	for _, n := range c.Nodes {
		if n.Gateway == gateway {
			return n.Name
		}
	}
	return ""
}
