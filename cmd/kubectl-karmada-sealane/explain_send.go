// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/explain"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/probe"
)

// startProbe is how long a probe's container has to start and to end: its image is on the node, and traces end.
const startProbe = 20 * time.Second

// nodeContainer is the container of the node agents' pods that is ours.
const nodeContainer = "node"

// maxOnNode is how many pods of a node are looked at: kubelets run fewer.
const maxOnNode = 2000

// ephemeralPrefix begins the name of a probe's container.
const ephemeralPrefix = "sealane-explain-"

// sender sends probes from a place.
type sender struct {
	at      explain.Spot
	api     *api
	kubectl string
	// pod of the source; nil for a node, from which agent sends.
	pod   *corev1.Pod
	agent *corev1.Pod
}

// sender of probes from the source of a request.
func (s *snapshot) sender(ctx context.Context, from explain.Place, node string, plane *explain.Fleet) (*sender, error) {
	p := s.member(from.Cluster)
	if p == nil || p.api == nil {
		return nil, &finding{expected: "to ask " + from.Cluster + ", from which the probe is to be sent",
			found: "it could not be asked", remedy: "add a kubeconfig context of its name, or leave --live out"}
	}
	out := &sender{at: explain.Spot{Cluster: from.Cluster, Node: node}, api: p.api, kubectl: "kubectl --context " +
		p.context}
	var pod *corev1.Pod
	var err error
	switch {
	case from.Node != "":
	case from.Pod != "":
		pod = &corev1.Pod{}
		_, err = p.api.find(ctx, client.ObjectKey{Namespace: from.Namespace, Name: from.Pod}, pod)
	default:
		pod, err = podAt(ctx, p.api, from, node)
	}
	if err != nil {
		return nil, err
	}
	if pod != nil && pod.Status.Phase != corev1.PodRunning {
		return nil, &finding{expected: fmt.Sprintf("pod %s/%s to run, so that a probe can be sent from it", pod.Namespace,
			pod.Name), found: "its phase is " + string(pod.Status.Phase),
			remedy: fmt.Sprintf("%s -n %s describe pod %s; or leave --live out", out.kubectl, pod.Namespace, pod.Name)}
	}
	if pod != nil {
		out.at.Node = pod.Spec.NodeName
	}
	var why string
	out.agent, why = runningAgent(plane, out.at)
	if why != "" {
		return nil, &finding{expected: "a node agent on the source's node " + out.at.Node, found: why,
			remedy: out.kubectl + " -n sealane-system get pods -o wide; or leave --live out"}
	}
	// A pod on the network of its node has a resolver of its own all the same, as its dnsPolicy says.
	out.pod = pod
	if agentImage(out.agent) == "" {
		return nil, &finding{expected: "a container " + nodeContainer + " in pod " + out.agent.Name, found: "it has none",
			remedy: "see who changes the DaemonSet of the node agents, or install anew; or leave --live out"}
	}
	return out, nil
}

// agentImage is the image of a node agent: others may add containers to its pod.
func agentImage(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == nodeContainer {
			return c.Image
		}
	}
	return ""
}

// podAt is the pod of a node that has an address, of whichever family: API servers select pods by their first alone.
func podAt(ctx context.Context, a *api, from explain.Place, node string) (*corev1.Pod, error) {
	var list corev1.PodList
	err := a.List(ctx, &list, client.MatchingFields{"spec.nodeName": node}, client.Limit(maxOnNode))
	if err != nil {
		return nil, fmt.Errorf("find the pod with %s: %w", from.Addr, err)
	}
	at := slices.IndexFunc(list.Items, func(p corev1.Pod) bool {
		return !p.Spec.HostNetwork && p.Status.Phase == corev1.PodRunning &&
			slices.ContainsFunc(p.Status.PodIPs, func(ip corev1.PodIP) bool {
				at, err := netip.ParseAddr(ip.IP)
				return err == nil && at.Unmap() == from.Addr
			})
	})
	if at < 0 {
		return nil, &finding{
			expected: fmt.Sprintf("a running pod on %s of %s with the address %s", node, from.Cluster, from.Addr),
			found:    "there is none, and a probe can be sent from pods and nodes only",
			remedy:   "name the pod, as in " + from.Cluster + "/NAMESPACE/POD; or leave --live out"}
	}
	return &list.Items[at], nil
}

// send a probe to a target, and return how it went, or the step that says why it was not sent.
func (s *sender) send(ctx context.Context, t *explain.Target, sent *explain.Sent) (probe.Knocked, *explain.Step) {
	args := []string{"probe", "knock", "--network=" + strings.ToLower(string(t.Port.Protocol)),
		fmt.Sprintf("--port=%d", t.Port.Number), fmt.Sprintf("--from=%d", sent.Port), fmt.Sprintf("--mark=%d", sent.Mark),
		fmt.Sprintf("--ipv6=%t", t.IPv6), "--", t.Host}
	ctx, cancel := context.WithTimeout(ctx, startProbe)
	defer cancel()
	var text string
	var err error
	if s.pod == nil {
		text, err = inAgent(ctx, s.api, s.agent, args...)
	} else {
		text, err = s.fromPod(ctx, args)
	}
	var k probe.Knocked
	if err == nil {
		k, err = probe.ParseKnocked(bytes.TrimSpace([]byte(text)))
	}
	if err == nil {
		return k, nil
	}
	return k, notSent(s.at, err)
}

// notSent is the step that says why no packet was sent.
func notSent(at explain.Spot, err error) *explain.Step {
	step := &explain.Step{At: at.String(), Name: "probe", Verdict: explain.Warn}
	const prefix = "no packet was sent: "
	var f *finding
	if errors.As(err, &f) {
		step.Expected, step.Found, step.Remedy = f.expected, prefix+f.found, f.remedy
	} else {
		const enough = 400
		step.Expected = "a probe to be sent from the source"
		step.Found = prefix + clip.Text(clip.Line(err.Error()), enough)
		step.Remedy = "see that the member runs this version, and that you may execute in the node agents' pods"
	}
	return step
}

// fromPod runs the agent's program in a container that is added to the source's pod: it sends from the pod's own
// network namespace, with no right but that.
func (s *sender) fromPod(ctx context.Context, args []string) (string, error) {
	what := s.pod.Namespace + "/" + s.pod.Name
	container := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: ephemeralPrefix + rand.String(5), Image: agentImage(s.agent),
		ImagePullPolicy: corev1.PullIfNotPresent, Args: args, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(int64(65532)), RunAsGroup: ptr.To(int64(65532)),
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{
		"ephemeralContainers": []corev1.EphemeralContainer{container}}})
	if err != nil {
		return "", err
	}
	clientset, err := kubernetes.NewForConfig(s.api.config)
	if err != nil {
		return "", fmt.Errorf("connect to %s: %w", s.api.config.Host, err)
	}
	pods := clientset.CoreV1().Pods(s.pod.Namespace)
	_, err = pods.Patch(ctx, s.pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager}, "ephemeralcontainers")
	if err != nil {
		remedy := "leave --live out, or send from the node: " + s.at.String()
		if apierrors.IsForbidden(err) {
			remedy = "have the right to patch pods/ephemeralcontainers there, and see the admission policies of its namespace" +
				"; or " + remedy
		}
		return "", &finding{expected: "to add an ephemeral container to pod " + what, found: clip.Line(err.Error()),
			remedy: remedy}
	}
	if err := s.ended(ctx, container.Name); err != nil {
		return "", err
	}
	log, err := pods.GetLogs(s.pod.Name, &corev1.PodLogOptions{Container: container.Name,
		LimitBytes: ptr.To(int64(probe.MaxLine))}).Stream(ctx)
	if err != nil {
		return "", &finding{expected: "to read the log of container " + container.Name + " of pod " + what,
			found: clip.Line(err.Error()), remedy: "have the right to get pods/log there"}
	}
	defer log.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(log, probe.MaxLine))
	return string(text), err
}

// ended waits for a container to have.
func (s *sender) ended(ctx context.Context, name string) error {
	state := "its state is not known"
	err := until(ctx, func(ctx context.Context) (bool, error) {
		var pod corev1.Pod
		if err := s.api.Get(ctx, client.ObjectKeyFromObject(s.pod), &pod); err != nil {
			return false, err
		}
		at := slices.IndexFunc(pod.Status.EphemeralContainerStatuses, func(c corev1.ContainerStatus) bool {
			return c.Name == name
		})
		if at < 0 {
			state = "the kubelet has not started it"
			return false, nil
		}
		c := pod.Status.EphemeralContainerStatuses[at].State
		switch {
		case c.Waiting != nil:
			state = strings.Trim(c.Waiting.Reason+": "+c.Waiting.Message, ": ")
			if slices.Contains([]string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName",
				"CreateContainerError", "CreateContainerConfigError", "RunContainerError"}, c.Waiting.Reason) {
				return false, errors.New(state)
			}
		case c.Running != nil:
			state = "it runs and does not end"
		}
		return c.Terminated != nil, nil
	})
	if err == nil {
		return nil
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		state = cmp.Or(err.Error(), state)
	}
	const enough = 300
	return &finding{expected: fmt.Sprintf("container %s of pod %s/%s to send a probe and end within %s", name,
		s.pod.Namespace, s.pod.Name, startProbe), found: clip.Text(clip.Line(state), enough),
		remedy: fmt.Sprintf("%s -n %s describe pod %s; the container has the image of the node agents: %s", s.kubectl,
			s.pod.Namespace, s.pod.Name, clip.Line(agentImage(s.agent)))}
}
