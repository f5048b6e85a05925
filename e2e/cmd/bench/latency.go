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
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/lab"
)

// pause between exports keeps one from being coalesced with the one before, as a user's would not be.
const pause = 2 * time.Second

// sample is how long after the creation of a ServiceExport another cluster had the objects that its kube-proxy
// needs, and answered.
type sample struct {
	begin              time.Time
	Objects, DNS, HTTP time.Duration
}

// exports are made in one cluster and seen from a pod on a worker of another.
type exports struct {
	lab                *lab.Lab
	exporter, importer lab.Cluster
	from, to           client.WithWatch
	// tag makes the services' names new: an import that was there lately is quicker to come back.
	tag string
}

// exportLatency exports fresh services, one after the other.
func exportLatency(ctx context.Context, l *lab.Lab, exporter lab.Cluster, tag string, count int) ([]sample, error) {
	e := exports{lab: l, exporter: exporter, importer: other(l, exporter), tag: tag}
	var err error
	if e.from, err = apiOf(l, exporter.Name); err != nil {
		return nil, err
	}
	if e.to, err = apiOf(l, e.importer.Name); err != nil {
		return nil, err
	}
	objects := make([]client.Object, 0, 2*count)
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		for _, o := range objects {
			_ = client.IgnoreNotFound(e.from.Delete(clean, o)) // what is left goes with the lab
		}
	}()
	for i := range count {
		s := service(e.name(i))
		if err := e.from.Create(ctx, s); err != nil {
			return nil, fmt.Errorf("create service: %w", err)
		}
		objects = append(objects, s)
	}
	samples := make([]sample, 0, count)
	for i := range count {
		if err := wait(ctx, pause); err != nil {
			return nil, err
		}
		export := &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Name: e.name(i), Namespace: "sample"}}
		objects = append([]client.Object{export}, objects...)
		s, err := e.time(ctx, export)
		if err != nil {
			return nil, fmt.Errorf("export %d: %w", i+1, err)
		}
		fmt.Printf("export from %s %d/%d: objects %d ms, dns %d ms, http %d ms\n", exporter.Name, i+1, count,
			s.Objects.Milliseconds(), s.DNS.Milliseconds(), s.HTTP.Milliseconds())
		samples = append(samples, s)
	}
	return samples, nil
}

func (e *exports) name(i int) string {
	return fmt.Sprintf("latency-%s-%s-%d", e.tag, e.exporter.Name, i)
}

func apiOf(l *lab.Lab, context string) (client.WithWatch, error) {
	config, err := l.RESTConfig(context)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 200, 400 // many services come at once
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme),
		mcsv1alpha1.Install(scheme)); err != nil {
		return nil, fmt.Errorf("build scheme: %w", err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
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

// time makes one export once the pod says that it is watching. The pod notes the times: all clusters are on
// this machine, so there is one clock.
func (e *exports) time(ctx context.Context, export *mcsv1alpha1.ServiceExport) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	complete, err := e.watchObjects(ctx, export.Name)
	if err != nil {
		return sample{}, err
	}
	url := fmt.Sprintf("http://%s.%s.svc.clusterset.local", export.Name, export.Namespace)
	cmd := exec.CommandContext(ctx, e.lab.Tool("kubectl"), "--kubeconfig="+e.lab.Kubeconfig(), "--context="+
		e.importer.Name,
		"-n", "sample", "exec", "client-"+worker(e.importer), "--", "/client", "watch", url)
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.StdoutPipe()
	if err != nil {
		return sample{}, fmt.Errorf("watch: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return sample{}, fmt.Errorf("watch: %w", err)
	}
	s, err := observe(bufio.NewReader(out), func() error { return e.from.Create(ctx, export) })
	if err != nil {
		cancel()
	}
	if waitErr := cmd.Wait(); err == nil && waitErr != nil {
		err = waitErr
	}
	if err != nil {
		return sample{}, fmt.Errorf("watch %s: %w: %s", url, err, failure.String())
	}
	select {
	case at := <-complete:
		s.Objects = at.Sub(s.begin)
		return s, nil
	case <-ctx.Done():
		return sample{}, fmt.Errorf("watch the objects of %s: %w", export.Name, context.Cause(ctx))
	}
}

// watchObjects tells when the importer has the derived Service and its EndpointSlice of an import.
func (e *exports) watchObjects(ctx context.Context, name string) (<-chan time.Time, error) {
	options := []client.ListOption{client.InNamespace("sample"), client.MatchingLabels{v1alpha1.LabelImport: name}}
	services, err := e.to.Watch(ctx, &corev1.ServiceList{}, options...)
	if err != nil {
		return nil, fmt.Errorf("watch services: %w", err)
	}
	slices, err := e.to.Watch(ctx, &discoveryv1.EndpointSliceList{}, options...)
	if err != nil {
		services.Stop()
		return nil, fmt.Errorf("watch endpoint slices: %w", err)
	}
	complete := make(chan time.Time, 1)
	go func() {
		defer services.Stop()
		defer slices.Stop()
		for _, w := range []watch.Interface{services, slices} {
			if _, ok := <-w.ResultChan(); !ok {
				return // the context has ended
			}
		}
		complete <- time.Now()
	}()
	return complete, nil
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
	return sample{begin: begin, DNS: dns.Sub(begin), HTTP: http.Sub(begin)}, nil
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
