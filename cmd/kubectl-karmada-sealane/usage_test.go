// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// deadEnd is a kubeconfig whose contexts karmada-apiserver and c1 lead to a port that nobody listens on.
const deadEnd = `
apiVersion: v1
kind: Config
clusters: [{name: k, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: x}}]
contexts: [{name: karmada-apiserver, context: {cluster: k, user: u}}, {name: c1, context: {cluster: k, user: u}}]
`

// TestEmptyScopesAreRefused: the value of a script's unset variable does not mean everything, in no command.
func TestEmptyScopesAreRefused(t *testing.T) {
	seen := map[string]bool{}
	refused := func(want string, line ...string) {
		t.Helper()
		out, code := commandLine(line...)
		if code == 0 || !strings.Contains(out, `found: ""`) || !strings.Contains(out, want) {
			t.Errorf("%q: exit code %d, printed %.300q, want %q", line, code, out, want)
		}
	}
	everyCommand(func(path []string, cmd *cobra.Command) {
		if !cmd.Runnable() || cmd.HasSubCommands() {
			return
		}
		cmd.Flags().AddFlagSet(cmd.InheritedFlags())
		for name := range scopes {
			if cmd.Flags().Lookup(name) == nil {
				continue
			}
			seen[name] = true
			refused("to do: name a", append(slices.Clone(path), "--"+name+"=")...)
			refused("to do: name a", append(slices.Clone(path), "--"+name, " ")...)
		}
		if cmd.Flags().Lookup("clusters") != nil {
			refused("name at least one cluster, or leave -C out", append(slices.Clone(path), "-C", "c1", "-C", "")...)
		}
		if strings.HasSuffix(cmd.Use, clusterArguments) {
			refused("names of clusters", append(slices.Clone(path), "c1", "")...)
		}
	})
	if len(seen) != len(scopes) {
		t.Errorf("commands have %v of the flags %v", seen, scopes)
	}
	refused("or leave -C out for all\n", "show", "all", "-C", "")
	refused("or leave --clusterset out for default\n", "rotate-keys", "--clusterset=")
	refused("or leave --context out\n", "uninstall", "--context=")
}

// TestWrongCommandLinesSayWhatToDo: what was expected, what was found, what to do, and an exit code other than 0.
func TestWrongCommandLinesSayWhatToDo(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		"good": deadEnd + "current-context: karmada-apiserver\n", "no-current": deadEnd, "broken": "not: [a kubeconfig",
		"empty": "apiVersion: v1\nkind: Config\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", dir)
	t.Setenv("KUBECONFIG", "")
	for _, tc := range []struct {
		line string
		// want are parts of what is printed.
		want []string
	}{
		{"frobnicate", []string{`"frobnicate"`, "join", "--help"}},
		{"--frob", []string{"unknown flag: --frob", "--help"}},
		{"show --frob", []string{"unknown flag: --frob", "show --help"}},
		{"show all -o", []string{"needs an argument"}},
		{"show all -o foo", []string{`"foo"`, "table, wide, json or yaml"}},
		{"version -o foo", []string{`"foo"`, "table, wide, json or yaml"}},
		{"show connections --context c1", []string{"unknown flag: --context"}},
		{"show services -A -n shop", []string{"all-namespaces namespace", "leave one of them out"}},
		{"completion foo", []string{`"foo"`, "bash"}},
		{"show all --timeout 5x", []string{`unknown unit "x"`}},
		{"show all --timeout 0", []string{"longer than 0", "5m"}},
		{"show all --timeout=-5s", []string{"longer than 0", "-5s"}},
		{"show all --member-timeout=0s", []string{"--member-timeout", "longer than 0"}},
		{"show services -n Shop", []string{`"Shop"`, "did you mean shop?"}},
		{"show connections -C C1", []string{`"C1"`, "did you mean c1?"}},
		{"install -C c1,,c2", []string{`""`, "separated by commas"}},
		{"join c1,c2", []string{`"c1,c2"`, "separated by spaces"}},
		{"leave C1", []string{`"C1"`, "did you mean c1?"}},
		{"show all surplus", []string{"show all", `"surplus"`}},
		{"status --wait=redy", []string{`"redy"`, "rolled-out"}},
		{"status --timeout=-1s", []string{"longer than 0"}},
		{"status --wait", []string{"the Karmada API at https://127.0.0.1:1", "connection refused"}},
		{"show connections -w", []string{"the Karmada API at https://127.0.0.1:1", "connection refused"}},
		{"show overlap", []string{"--with", "found: none"}},
		{"show overlap --with 10.8.0.0", []string{"not a CIDR"}},
		{"show overlap --with 10.8.0.1/16", []string{"the network is 10.8.0.0/16"}},
		{"export", []string{"export SERVICE", "no argument", "export --help"}},
		{"export web mail", []string{"export SERVICE", `"mail"`}},
		{"export Web", []string{"name of a Service", `"Web"`}},
		{"export shop/web", []string{`"shop/web"`, "web -n shop"}},
		{"export web -n Shop", []string{`"Shop"`}},
		{"export web -o table", []string{"yaml or json", `"table"`}},
		{"export web --mode clusterip", []string{"ClusterSetIP", `"clusterip"`}},
		{"export web --import-clusters C_1", []string{"C_1", "check the names"}},
		{"export web --import-selector a=b=c", []string{"a=b=c", "label selector"}},
		{"export web --import-selector=", []string{"empty", "leave it out"}},
		{"export web -C c1 --context c1", []string{"clusters context", "leave one of them out"}},
		{"unexport", []string{"unexport SERVICE", "no argument"}},
		{"unexport Web", []string{"name of a Service", `"Web"`}},
		{"diagnose dns web mail", []string{"dns [NAME]", `"mail"`}},
		{"diagnose all surplus", []string{"diagnose all", `"surplus"`}},
		{"diagnose all -o foo", []string{`"foo"`}},
		{"diagnose mtu", []string{"the Karmada API at https://127.0.0.1:1", "connection refused"}},
		{"diagnose dns web -o foo", []string{`"foo"`}},
		{"install --controller=foo", []string{`"foo"`, "deployment or external"}},
		{"install --render -o json", []string{"unknown shorthand flag"}},

		{"show all --kubeconfig=", []string{"a kubeconfig with a current context", "$KUBECONFIG", "--kubeconfig"}},
		{"show all --kubeconfig=/nonexistent", []string{"no such file", "/nonexistent"}},
		{"show all --kubeconfig={broken}", []string{"error loading config file"}},
		{"show all --kubeconfig={empty}", []string{"no context", "{empty}"}},
		{"show all --kubeconfig={no-current}", []string{"no current context; contexts: c1, karmada-apiserver"}},
		{"show all --karmada-context karmada-apiservr", []string{"did you mean karmada-apiserver?"}},
		{"uninstall --context c9", []string{`"c9" does not exist`, "contexts: c1, karmada-apiserver"}},
		{"show all", []string{"the Karmada API at https://127.0.0.1:1", "connection refused", "--karmada-context"}},
		{"version", []string{"the Karmada API at https://127.0.0.1:1", "connection refused"}},
		{"join c1", []string{"the Karmada API at https://127.0.0.1:1", "connection refused"}},
		{"leave c1", []string{"the Karmada API at https://127.0.0.1:1", "connection refused"}},
		{"export web -n shop", []string{"the Karmada API at https://127.0.0.1:1", "connection refused"}},
		{"unexport web -n shop", []string{"the Karmada API at https://127.0.0.1:1", "connection refused"}},
		{"unexport web -n shop --context c1", []string{"the member at https://127.0.0.1:1", "connection refused"}},
		{"diagnose dns web.shop", []string{"the Karmada API at https://127.0.0.1:1", "connection refused"}},
	} {
		replace := func(text string) string {
			for name := range files {
				text = strings.ReplaceAll(text, "{"+name+"}", filepath.Join(dir, name))
			}
			return text
		}
		// The last of two --kubeconfig is in force.
		line := append([]string{"--kubeconfig=" + filepath.Join(dir, "good")}, strings.Fields(replace(tc.line))...)
		out, code := commandLine(line...)
		if code == 0 {
			t.Errorf("%s: exit code 0", tc.line)
		}
		for _, want := range append(tc.want, "error: expected ", "\n  found: ", "\n  to do: ") {
			if !strings.Contains(out, replace(want)) {
				t.Errorf("%s: does not say %q, but %q", tc.line, replace(want), out)
			}
		}
	}
}
