// SPDX-License-Identifier: Apache-2.0

package sealane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// API is an administrator's access to the API of one context of a lab.
type API struct {
	client.WithWatch
	config *rest.Config
	core   kubernetes.Interface
}

// apis are made once per context.
type apis struct {
	mu        sync.Mutex
	byContext map[string]*API
}

// API returns the access to a context: karmada or a cluster.
func (s *Sealane) API(context string) (*API, error) {
	s.apis.mu.Lock()
	defer s.apis.mu.Unlock()
	if a := s.apis.byContext[context]; a != nil {
		return a, nil
	}
	config, err := s.Lab.RESTConfig(context)
	if err != nil {
		return nil, err
	}
	a, err := newAPI(config)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", context, err)
	}
	if s.apis.byContext == nil {
		s.apis.byContext = map[string]*API{}
	}
	s.apis.byContext[context] = a
	return a, nil
}

func newAPI(config *rest.Config) (*API, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, mcs.Install, mcsv1alpha1.Install, v1alpha1.AddToScheme, policyv1alpha1.Install,
		workv1alpha1.Install, workv1alpha2.Install,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &API{WithWatch: c, config: config, core: core}, nil
}

// Exec runs a command in a pod and returns its standard output. Standard error is part of the error.
func (a *API) Exec(ctx context.Context, namespace, pod string, argv ...string) (string, error) {
	return a.ExecWith(ctx, nil, namespace, pod, argv...)
}

// ExecWith is Exec with a standard input, which is none if nil.
func (a *API) ExecWith(ctx context.Context, stdin io.Reader, namespace, pod string, argv ...string) (string, error) {
	url := a.core.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: argv, Stdin: stdin != nil, Stdout: true, Stderr: true},
			clientgoscheme.ParameterCodec).URL()
	executor, err := remotecommand.NewWebSocketExecutor(a.config, "GET", url.String())
	if err != nil {
		return "", fmt.Errorf("exec in %s: %w", pod, err)
	}
	var stdout, stderr bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: &stdout, Stderr: &stderr})
	out := strings.TrimSpace(stdout.String())
	if err != nil {
		return out, fmt.Errorf("%v in %s: %w", argv, pod, errors.Join(err, errors.New(strings.TrimSpace(stderr.String()))))
	}
	return out, nil
}
