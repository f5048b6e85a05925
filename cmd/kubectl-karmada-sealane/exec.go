// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// maxState bounds, in bytes, what a node agent may print.
const maxState = 8 << 20

// inAgent executes a command of sealane-agent in the pod of a node agent, and returns what it prints. On an error that
// is what it had printed before.
func inAgent(ctx context.Context, a *api, pod *corev1.Pod, command ...string) (string, error) {
	what := "execute sealane-agent " + strings.Join(command, " ")
	out, said := &bounded{limit: maxState}, &bounded{limit: 1 << 10}
	err := execute(ctx, a, pod, remotecommand.StreamOptions{Stdout: out, Stderr: said}, command...)
	if err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", what, err, oneLine(cmp.Or(said.String(), "no output")))
	}
	return out.String(), nil
}

// execute a command of sealane-agent in the pod of a node agent.
func execute(ctx context.Context, a *api, pod *corev1.Pod, streams remotecommand.StreamOptions,
	command ...string) error {
	clientset, err := kubernetes.NewForConfig(a.config)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", a.config.Host, err)
	}
	request := clientset.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).
		SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Container: nodeContainer, Command: append([]string{"/sealane-agent"}, command...),
		Stdin: streams.Stdin != nil, Stdout: true, Stderr: true,
	}, scheme.ParameterCodec)
	executor, err := remotecommand.NewSPDYExecutor(a.config, "POST", request.URL())
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, streams)
}

// bounded keeps the start of what is written to it.
type bounded struct {
	bytes.Buffer
	limit int
}

// Write takes all, so that who writes goes on.
func (b *bounded) Write(data []byte) (int, error) {
	b.Buffer.Write(data[:min(len(data), max(b.limit-b.Len(), 0))])
	return len(data), nil
}
