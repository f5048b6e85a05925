// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/sealane-io/sealane/internal/version"
)

// commandLine runs one without any API server.
func commandLine(args ...string) (out string, code int) {
	var b bytes.Buffer
	streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &b, ErrOut: &b}
	code = run(append([]string{"kubectl-karmada-sealane", "--kubeconfig=/nonexistent"}, args...), streams)
	return b.String(), code
}

// everyCommand calls f with the path of each command but the root.
func everyCommand(f func(path []string, cmd *cobra.Command)) {
	var walk func(path []string, parent *cobra.Command)
	walk = func(path []string, parent *cobra.Command) {
		for _, cmd := range parent.Commands() {
			below := append(slices.Clone(path), cmd.Name())
			f(below, cmd)
			walk(below, cmd)
		}
	}
	root := newRoot("kubectl-karmada-sealane", genericiooptions.NewTestIOStreamsDiscard())
	f(nil, root)
	walk(nil, root)
}

func TestUnknownCommandsFailAtEveryLevel(t *testing.T) {
	groups := 0
	everyCommand(func(path []string, cmd *cobra.Command) {
		if !cmd.HasSubCommands() {
			return
		}
		groups++
		for _, line := range [][]string{append(slices.Clone(path), "zzz"), append(append([]string{"help"}, path...), "zzz")} {
			out, code := commandLine(line...)
			if code == 0 || !strings.Contains(out, `"zzz"`) || !strings.Contains(out, "--help") {
				t.Errorf("%v: exit code %d, printed %q", line, code, out)
			}
		}
		if out, code := commandLine(path...); code != 0 || !strings.Contains(out, "Usage:") {
			t.Errorf("%v without a command: exit code %d, printed %q", path, code, out)
		}
	})
	if groups < 4 {
		t.Errorf("%d commands have commands below them, expected the root, show, diagnose and completion", groups)
	}
	for word, want := range map[string]string{"conections": "connections", "service": "services", "problem": "problems"} {
		if out, _ := commandLine("show", word); !strings.Contains(out, "did you mean "+want) {
			t.Errorf("show %s does not propose %s: %s", word, want, out)
		}
	}
}

// TestEveryCommandRefusesWordsTooMany: a command without arguments takes none in silence.
func TestEveryCommandRefusesWordsTooMany(t *testing.T) {
	everyCommand(func(path []string, cmd *cobra.Command) {
		if cmd.HasSubCommands() || strings.Contains(cmd.Use, "...") || cmd.Name() == "help" {
			return
		}
		line := append(slices.Clone(path), "one", "two", "three")
		if out, code := commandLine(line...); code == 0 || !strings.Contains(out, "arg") && !strings.Contains(out, `"one"`) {
			t.Errorf("%v: exit code %d, printed %q", line, code, out)
		}
	})
}

// TestEveryCommandHelps: a text and, where there are arguments, what they are.
func TestEveryCommandHelps(t *testing.T) {
	everyCommand(func(path []string, cmd *cobra.Command) {
		out, code := commandLine(append(slices.Clone(path), "--help")...)
		if code != 0 || cmd.Short == "" || !strings.Contains(out, "Usage:") {
			t.Errorf("%v --help: exit code %d, printed %q", path, code, out)
		}
		for line := range strings.Lines(cmd.Long) {
			if len(line) > 120 {
				t.Errorf("%v --help has a line of %d columns: %s", path, len(line), line)
			}
		}
	})
}

func TestVersionOfTheClientAlone(t *testing.T) {
	out, code := commandLine("version", "--client")
	if code != 0 || strings.Count(out, "\n") != 1 {
		t.Errorf("version --client: %d, %q", code, out)
	}
	for format, want := range map[string]string{"json": `"component": "plugin"`, "yaml": "component: plugin",
		"wide": "COMPONENT"} {
		if out, code := commandLine("version", "--client", "-o", format); code != 0 || !strings.Contains(out, want) {
			t.Errorf("version --client -o %s: %d, %q", format, code, out)
		}
	}
	if out, code := commandLine("version", "--client", "-o", "xml"); code == 0 {
		t.Errorf("version --client -o xml: %q", out)
	}
}

func TestVersionWithoutACluster(t *testing.T) {
	out, code := commandLine("version")
	if code == 0 || !strings.Contains(out, "plugin") || !strings.Contains(out, version.Version) {
		t.Errorf("version without a cluster: %d, %q, want a failure and its own version all the same", code, out)
	}
}

func TestColourIsForTerminalsThatWantIt(t *testing.T) {
	if colourful(&bytes.Buffer{}) {
		t.Error("a pipe gets colours")
	}
	for name, tc := range map[string]struct {
		env  map[string]string
		want bool
	}{
		"a terminal":          {want: true},
		"NO_COLOR":            {env: map[string]string{"NO_COLOR": "1"}},
		"NO_COLOR, but empty": {env: map[string]string{"NO_COLOR": ""}, want: true},
		"a dumb terminal":     {env: map[string]string{"TERM": "dumb"}},
	} {
		if got := wantsColour(func(key string) string { return tc.env[key] }); got != tc.want {
			t.Errorf("%s: colours %v, want %v", name, got, tc.want)
		}
	}
}
