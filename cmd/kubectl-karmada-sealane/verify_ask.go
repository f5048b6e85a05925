// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/matrix"
	"github.com/sealane-io/sealane/internal/probe"
)

// logReader follows the log of a pod.
type logReader func(ctx context.Context, member *api, pod client.ObjectKey) (io.ReadCloser, error)

// board is the matrix while clients report to it.
type board struct {
	sync.Mutex
	matrix.Matrix
}

// ask makes the clients of a member, and takes their results from their logs as they come.
func (t *trial) ask(ctx context.Context, s *site, b *board, logs logReader) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range s.clients {
		g.Go(func() error {
			b.Lock()
			checks := b.Asked(c.Place)
			b.Unlock()
			if len(checks) == 0 {
				return nil
			}
			var reason string
			if err := s.api.Create(ctx, t.clientPod(s, c.Place, checks)); err != nil {
				reason = "the client could not be created: " + err.Error()
			} else {
				patience := startPatience + probe.Longest(len(checks), askPatience)
				reason = t.follow(ctx, s, clientName(c.Place), patience, logs, func(log io.Reader) bool {
					b.take(c.Place, log)
					return b.settled(c.Place)
				})
			}
			b.Lock()
			b.Abandon(c.Place, reason)
			b.Unlock()
			return ctx.Err()
		})
	}
	return g.Wait()
}

// follow has a client's log read until take has all that it needs, or the client has ended, and then says why what it
// has not reported failed. A log that breaks off is read again, from its beginning.
func (t *trial) follow(ctx context.Context, s *site, name string, patience time.Duration, logs logReader,
	take func(io.Reader) bool,
) string {
	started := time.Now()
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	key := client.ObjectKey{Namespace: t.namespace, Name: name}
	var pod corev1.Pod
	var broken error
	err := until(patient, func(ctx context.Context) (bool, error) {
		if err := s.api.Get(ctx, key, &pod); err != nil {
			return false, err
		}
		if pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "" {
			return time.Since(started) > startPatience, nil
		}
		ended, all := over(&pod), false
		log, err := logs(ctx, s.api, key)
		if err == nil {
			all = take(log)
			err = log.Close()
		}
		broken = err
		return ended || all, nil
	})
	if broken != nil {
		return fmt.Sprintf("the log of pod %s cannot be read: %v", key, broken)
	}
	return "the client did not report it: " + state(&pod, err)
}

// take reads results from a log until it ends. Lines that are none, as those of an agent that does not know probes,
// are passed over.
func (b *board) take(from matrix.Place, log io.Reader) {
	lines := bufio.NewScanner(io.LimitReader(log, int64(len(b.Checks)+1)*probe.MaxLine))
	lines.Buffer(make([]byte, 0, probe.MaxLine), probe.MaxLine)
	for lines.Scan() {
		if r, err := probe.ParseResult(lines.Bytes()); err == nil {
			b.Lock()
			b.Settle(from, r)
			b.Unlock()
		}
	}
}

// settled says that a client has reported all that it was asked.
func (b *board) settled(from matrix.Place) bool {
	b.Lock()
	defer b.Unlock()
	return len(b.Asked(from)) == 0
}

// followLog opens the log of a pod, and follows it until the pod ends.
func followLog(ctx context.Context, member *api, pod client.ObjectKey) (io.ReadCloser, error) {
	clientset, err := kubernetes.NewForConfig(member.config)
	if err != nil {
		return nil, err
	}
	return clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
}
