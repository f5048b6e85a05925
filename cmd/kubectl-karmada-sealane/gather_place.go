// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	// atOnce are places, and requests to each.
	atOnce = 4
	// maxEvents of a namespace.
	maxEvents = 5000
)

// placeReader reads of a place what no check goes by.
type placeReader struct {
	*gathering
	*archive
	gatheredPlace
	// namespace of Sealane's there.
	namespace string
	clientset kubernetes.Interface
}

// gather writes all of a place. What cannot be read is noted; an error is one of writing.
func (r *placeReader) gather(ctx context.Context) error {
	p := r.place
	asked, cancel := context.WithTimeout(ctx, 2*r.memberTimeout)
	p.readFrom(asked, p.api, r.extra)
	cancel()
	if err := r.objects(r.dir, p); err != nil {
		return err
	}
	var err error
	if r.clientset, err = kubernetes.NewForConfig(p.api.config); err != nil {
		return fmt.Errorf("connect to %s: %w", p.api.config.Host, err)
	}
	work := &errgroup.Group{}
	work.SetLimit(atOnce)
	add := func(file string, read func(context.Context) (string, error)) {
		work.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, 2*r.memberTimeout)
			defer cancel()
			file := path.Join(r.dir, file)
			text, err := read(ctx)
			if err != nil {
				r.lacks(file, err)
			}
			if text == "" {
				return nil
			}
			return r.text(file, text)
		})
	}
	add("events.txt", r.events)
	for _, pod := range of[*corev1.Pod](p) {
		if pod.Namespace != r.namespace {
			continue
		}
		r.logs(pod, add)
		if pod.Labels["app.kubernetes.io/name"] == nodeAgentName && pod.Spec.NodeName != "" {
			add(path.Join("nodes", pod.Spec.NodeName+"_"+pod.Name+".txt"),
				func(ctx context.Context) (string, error) { return r.state(ctx, pod) })
		}
	}
	return work.Wait()
}

// events of Sealane's namespace, and those about its objects that are in no namespace, the oldest first.
func (r *placeReader) events(ctx context.Context) (string, error) {
	var all []corev1.Event
	var errs []error
	for _, namespace := range []string{r.namespace, metav1.NamespaceDefault} {
		list, err := r.clientset.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{Limit: maxEvents})
		if err != nil {
			errs = append(errs, fmt.Errorf("list events in %s: %w", namespace, err))
			continue
		}
		if list.Continue != "" {
			errs = append(errs, fmt.Errorf("events in %s: more than %d, the rest is left out", namespace, maxEvents))
		}
		for i := range list.Items {
			if e := &list.Items[i]; namespace == r.namespace || strings.HasPrefix(e.InvolvedObject.APIVersion, "sealane.io/") {
				all = append(all, *e)
			}
		}
	}
	slices.SortFunc(all, func(a, b corev1.Event) int { return eventTime(&a).Compare(eventTime(&b)) })
	var out strings.Builder
	for i := range all {
		e := &all[i]
		fmt.Fprintf(&out, "%s %s %s %s %s/%s x%d: %s\n", eventTime(e).UTC().Format(time.RFC3339), e.Namespace, e.Type,
			e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, max(e.Count, 1), oneLine(e.Message))
	}
	return out.String(), errors.Join(errs...)
}

func eventTime(e *corev1.Event) time.Time {
	latest := e.EventTime.Time
	for _, at := range []time.Time{e.CreationTimestamp.Time, e.LastTimestamp.Time} {
		if at.After(latest) {
			latest = at
		}
	}
	return latest
}

// logs of each container of a pod, and of the one before it where it has ended.
func (r *placeReader) logs(pod *corev1.Pod, add func(string, func(context.Context) (string, error))) {
	if r.logsSince == 0 || r.logBytes == 0 {
		return
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if c.State.Waiting != nil && c.RestartCount == 0 {
			continue // it has never run
		}
		for _, previous := range []bool{false, true}[:1+min(c.RestartCount, 1)] {
			name := pod.Name + "_" + c.Name
			if previous {
				name += ".previous"
			}
			add(path.Join("logs", name+".log"),
				func(ctx context.Context) (string, error) { return r.log(ctx, pod, c.Name, previous) })
		}
	}
}

// log of a container: its newest lines.
func (r *placeReader) log(ctx context.Context, pod *corev1.Pod, container string, previous bool) (string, error) {
	// The API server bounds a log from its start, or by lines of any length.
	const shortLine, longLines = 50, 8
	in, err := r.clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: container, Previous: previous, Timestamps: true,
		SinceSeconds: ptr.To(max(int64(r.logsSince/time.Second), 1)),
		TailLines:    ptr.To(r.logBytes/shortLine + 1), LimitBytes: ptr.To(longLines * r.logBytes),
	}).Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("read the log: %w", err)
	}
	defer in.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(in, longLines*r.logBytes))
	if over := int64(len(text)) - r.logBytes; over > 0 {
		text = text[over:]
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	if err != nil {
		return string(text), fmt.Errorf("read the log: %w", err)
	}
	return string(text), nil
}

// state has the node agent in a pod print what its node's kernel has of Sealane.
func (r *placeReader) state(ctx context.Context, pod *corev1.Pod) (string, error) {
	return inAgent(ctx, r.place.api, pod, "state")
}
