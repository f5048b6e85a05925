// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/lab"
)

// fault is what happens to a gateway, and how it is undone.
type fault struct {
	name       string
	do, repair func(context.Context, *lab.Lab, string) error
	// traffic is how long there is traffic, if not as usual.
	traffic time.Duration
	// deaf says that nobody can ask for traffic in the cluster meanwhile.
	deaf bool
}

// cut drops the packets that arrive at a node for some UDP ports.
func cut(ports string) func(context.Context, *lab.Lab, string) error {
	return func(ctx context.Context, l *lab.Lab, node string) error {
		return inNode(ctx, l, node, "nft 'table inet failover { chain in { type filter hook prerouting priority -500; "+
			"udp dport "+ports+" drop; }; }'")
	}
}

func uncut(ctx context.Context, l *lab.Lab, node string) error {
	return inNode(ctx, l, node, "nft delete table inet failover")
}

func faults() []fault {
	nothing := func(context.Context, *lab.Lab, string) error { return nil }
	return []fault{
		{name: "nothing", do: nothing, repair: nothing},
		{name: "network gone", do: isolate, repair: uncut},
		{name: "powered off", do: powerOff, repair: powerOn},
		{name: "container killed", do: killAgent(""), repair: nothing},
		{name: "agent crashes", do: killAgent("--supervised"), repair: nothing},
		{name: "cables cut in one direction", do: cut("4500-4515"), repair: uncut},
		{name: "overlay cut in one direction", do: cut("4800"), repair: uncut},
		{name: "network gone, and kubelet and API server", do: alone, repair: together, deaf: true},
		{name: "both gateways in turn", do: inTurn, repair: nothing},
		{name: "both gateways at once, for 2 s", do: both, repair: nothing},
		{name: "rebooted", do: reboot, repair: nothing, traffic: 15 * time.Second},
		{name: "pod deleted", do: deletePod, repair: nothing},
		{name: "label removed", do: label(v1alpha1.LabelGateway + "-"), repair: label(v1alpha1.LabelGateway + "=true")},
		{name: "roll-out in all clusters", do: rollOut, repair: nothing, traffic: 180 * time.Second},
		{name: "10 % of packets lost", do: lose(10), repair: uncut},
		{name: "30 % of packets lost", do: lose(30), repair: uncut},
		{name: "50 % of packets lost", do: lose(50), repair: uncut},
	}
}

func clusterOf(node string) string {
	cluster, _, _ := strings.Cut(node, "-")
	return cluster
}

// sibling is the other gateway of a cluster.
func sibling(gateway string) string {
	if one, ok := strings.CutSuffix(gateway, "1"); ok {
		return one + "2"
	}
	return strings.TrimSuffix(gateway, "2") + "1"
}

// inTurn isolates a gateway, and when it carries again its sibling.
func inTurn(ctx context.Context, l *lab.Lab, node string) error {
	const away, back = 1500 * time.Millisecond, 2 * time.Second
	err := errors.Join(isolate(ctx, l, node), wait(ctx, away), uncut(ctx, l, node), wait(ctx, back))
	return errors.Join(err, isolate(ctx, l, sibling(node)), wait(ctx, away), uncut(ctx, l, sibling(node)))
}

// lose drops some percent of what arrives at a gateway by its cables.
func lose(percent int) func(context.Context, *lab.Lab, string) error {
	return func(ctx context.Context, l *lab.Lab, node string) error {
		return inNode(ctx, l, node, fmt.Sprintf("nft 'table inet failover { chain in { "+
			"type filter hook prerouting priority -500; udp dport 4500-4515 numgen random mod 100 < %d drop; }; }'", percent))
	}
}

// label changes a label of a node.
func label(change string) func(context.Context, *lab.Lab, string) error {
	return func(ctx context.Context, l *lab.Lab, node string) error {
		_, err := l.Kubectl(ctx, "--context", clusterOf(node), "label", "node", node, change, "--overwrite")
		return err
	}
}

// rollOut gives the node agents' DaemonSet of all clusters another template.
func rollOut(ctx context.Context, l *lab.Lab, _ string) error {
	_, err := l.Kubectl(ctx, "--context", "karmada", "-n", "sealane-system", "patch", "daemonset", "sealane-node",
		"--type=strategic", "-p",
		fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"rolled":"%d"}}}}}`, time.Now().UnixNano()))
	return err
}

func powerOff(ctx context.Context, l *lab.Lab, node string) error {
	return errors.Join(isolate(ctx, l, node), l.StopProcess(ctx, node+"-kubelet"), kill(l, node, ""))
}

func powerOn(ctx context.Context, l *lab.Lab, node string) error {
	return errors.Join(uncut(ctx, l, node), l.StartProcess(node+"-kubelet"))
}

// alone takes a gateway's network away while neither its kubelet nor its cluster's API server runs.
func alone(ctx context.Context, l *lab.Lab, node string) error {
	return errors.Join(l.StopProcess(ctx, clusterOf(node)+"-apiserver"), l.StopProcess(ctx, node+"-kubelet"),
		isolate(ctx, l, node))
}

func together(ctx context.Context, l *lab.Lab, node string) error {
	return errors.Join(uncut(ctx, l, node), l.StartProcess(clusterOf(node)+"-apiserver"),
		l.StartProcess(node+"-kubelet"))
}

// both takes the network of both gateways of a cluster away, and gives it back.
func both(ctx context.Context, l *lab.Lab, node string) error {
	const away = 2 * time.Second
	err := errors.Join(isolate(ctx, l, node), isolate(ctx, l, sibling(node)), wait(ctx, away))
	return errors.Join(err, uncut(ctx, l, node), uncut(ctx, l, sibling(node)))
}

// reboot leaves a gateway as a boot does: without its agent, and without the links, routes and tables that the agent
// had made. The network is away meanwhile.
func reboot(ctx context.Context, l *lab.Lab, node string) error {
	const away, remove = 3 * time.Second, `for l in $(ip -o link | grep -o 'sl-[a-z0-9]*' | sort -u); do
			ip link del "$l" 2>/dev/null || true
		done
		for f in -4 -6; do
			ip $f route flush table 5100 2>/dev/null || true
			while ip $f rule del lookup 5100 2>/dev/null; do :; done
		done
		nft delete table ip sealane; nft delete table ip6 sealane || true`
	err := errors.Join(powerOff(ctx, l, node), inNode(ctx, l, node, remove), wait(ctx, away))
	return errors.Join(err, powerOn(ctx, l, node))
}

func inNode(ctx context.Context, l *lab.Lab, node, script string) error {
	if out, err := l.InNode(ctx, node, "sh", "-ec", script); err != nil {
		return fmt.Errorf("%s: %w: %s", node, err, out)
	}
	return nil
}

// isolate drops all packets from and to a node: its own links keep their routes, as behind a switch that dies.
func isolate(ctx context.Context, l *lab.Lab, node string) error {
	return inNode(ctx, l, node, `nft 'table inet failover {
		chain in { type filter hook prerouting priority -500; iifname "eth0" drop; }
		chain out { type filter hook postrouting priority 500; oifname "eth0" drop; }
	}'`)
}

func deletePod(ctx context.Context, l *lab.Lab, node string) error {
	cluster, _, _ := strings.Cut(node, "-")
	_, err := l.Kubectl(ctx, "--context", cluster, "-n", "sealane-system", "delete", "pod", "--wait=false",
		"-l", "app.kubernetes.io/name=sealane-node", "--field-selector=spec.nodeName="+node)
	return err
}

func killAgent(argument string) func(context.Context, *lab.Lab, string) error {
	return func(_ context.Context, l *lab.Lab, node string) error { return kill(l, node, argument) }
}

// kill kills the processes of a node's agent that have an argument, all of them if it is empty.
func kill(l *lab.Lab, node, argument string) error {
	ns, err := os.Stat(filepath.Join("/run/netns", l.Netns(node)))
	if err != nil {
		return err
	}
	programs, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return err
	}
	killed := 0
	for _, exe := range programs {
		dir := filepath.Dir(exe)
		path, err := os.Readlink(exe)
		its, statErr := os.Stat(filepath.Join(dir, "ns/net"))
		if err != nil || statErr != nil || filepath.Base(path) != "sealane-agent" || !os.SameFile(ns, its) {
			continue // it ended, or is another's
		}
		args, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || argument != "" && !slices.Contains(strings.Split(string(args), "\x00"), argument) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
			killed++
		}
	}
	if killed == 0 {
		return fmt.Errorf("no agent runs on %s", node)
	}
	return nil
}

// settle waits until the workers' traffic is spread over both gateways of their clusters again, and a while for what
// holds.
func settle(ctx context.Context, l *lab.Lab) error {
	const patience, calm = 5 * time.Minute, 5 * time.Second
	deadline := time.Now().Add(patience)
	for {
		err := errors.Join(served(ctx, l), spread(ctx, l, "c1", "10.9.0.0/16"), spread(ctx, l, "c2", "10.8.0.0/16"))
		if err == nil {
			return wait(ctx, calm)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s: %w", patience, err)
		}
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
	}
}

// served says why the clusters are not asked for, or do not run, what they should.
func served(ctx context.Context, l *lab.Lab) error {
	var errs []error
	for _, cluster := range []string{"c1", "c2"} {
		out, err := l.Kubectl(ctx, "--context", cluster, "-n", "sealane-system", "rollout", "status", "daemonset",
			"sealane-node", "--timeout=1s")
		if err != nil {
			err = fmt.Errorf("%s: %w: %s", cluster, err, out)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// spread says why the routes of a cluster to a network do not have two next hops each, the gateways' both alive.
func spread(ctx context.Context, l *lab.Lab, cluster, prefix string) error {
	for _, node := range []string{"worker", "gw1", "gw2"} {
		out, err := l.InNode(ctx, cluster+"-"+node, "ip", "route", "show", "table", "5100", prefix)
		if n := strings.Count(string(out), "nexthop"); err == nil && n != 2 {
			err = fmt.Errorf("expected two next hops to %s on %s-%s, found %s", prefix, cluster, node, out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
