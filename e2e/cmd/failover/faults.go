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

	"github.com/sealane-io/sealane/e2e/lab"
)

// fault is what happens to a gateway, and how it is undone.
type fault struct {
	name       string
	do, repair func(context.Context, *lab.Lab, string) error
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
		{"nothing", nothing, nothing},
		{"network gone", isolate, uncut},
		{"powered off", func(ctx context.Context, l *lab.Lab, node string) error {
			return errors.Join(isolate(ctx, l, node), l.StopProcess(ctx, node+"-kubelet"), kill(l, node, ""))
		}, func(ctx context.Context, l *lab.Lab, node string) error {
			return errors.Join(uncut(ctx, l, node), l.StartProcess(node+"-kubelet"))
		}},
		{"container killed", func(_ context.Context, l *lab.Lab, node string) error { return kill(l, node, "") }, nothing},
		{"agent crashes", func(_ context.Context, l *lab.Lab, node string) error { return kill(l, node, "--supervised") },
			nothing},
		{"cables cut in one direction", cut("4500-4515"), uncut},
		{"overlay cut in one direction", cut("4800"), uncut},
		{"pod deleted", deletePod, nothing},
	}
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
		err := errors.Join(spread(ctx, l, "c1", "10.9.0.0/16"), spread(ctx, l, "c2", "10.8.0.0/16"))
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
