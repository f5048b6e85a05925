// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/suite"
)

// documents with commands, in the order in which they are to be read, and the current context of their commands. The
// last command of the installation guide is uninstall.
var documents = []struct{ path, context string }{
	{"README.md", "karmada-apiserver"},
	{"CONTRIBUTING.md", ""},
	{"docs/lab.md", ""},
	{"docs/requirements.md", "karmada-apiserver"},
	{"docs/troubleshooting.md", "c1"},
	{"docs/high-availability.md", "karmada-apiserver"},
	{"docs/first-try.md", "karmada-apiserver"},
	{"docs/install.md", "karmada-apiserver"},
}

// sample is the namespace of the reader's own service, as the documents' commands have it.
const sample = " -n sample"

// TestWhatTheDocumentsTellToRunRuns: every command of every shell block, as it stands but for placeholders, the
// namespace of the reader's own service, how long is measured, and what only the reader's own machine can do.
func TestWhatTheDocumentsTellToRunRuns(t *testing.T) {
	suite.Long(t)
	root, err := lab.SourceRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, service := map[string]string{}, map[string]suite.Namespace{}
	for _, d := range documents {
		page, err := os.ReadFile(filepath.Join(root, d.path))
		if err != nil {
			t.Fatal(err)
		}
		if text[d.path] = string(page); strings.Contains(text[d.path], sample) {
			service[d.path] = ownService(t)
		}
	}
	suite.RestoreAfter(t, []string{"uninstall", "--host-context=c1"})
	// The documents install the controller as a Deployment, and two would work against each other.
	if err := suite.Lab().StopProcess(t.Context(), "sealane-controller"); err != nil {
		t.Fatal(err)
	}
	for _, d := range documents {
		commands := shellCommands(text[d.path])
		if len(commands) == 0 {
			t.Errorf("no command found in %s", d.path)
		}
		r := newReader(t, root, d.context, service[d.path].Name)
		for _, command := range commands {
			t.Run(d.path+"/"+command, func(t *testing.T) {
				r.run(t, command)
				if strings.Contains(command, " export whereami ") {
					answered(t, service[d.path])
				}
			})
		}
	}
}

// answered expects what the documents say after export: a pod of any member gets an answer of c2 at the name.
func answered(t *testing.T, s suite.Namespace) {
	t.Helper()
	for _, cluster := range suite.Members() {
		suite.AnsweredBy(t, cluster, suite.ClientOf(cluster), "whereami."+s.Name+".svc.clusterset.local", "c2")
	}
}

// ownService serves whereami in c2, in a namespace of its own. As for a new user, the Karmada API has neither the
// Service nor the namespace, until a command of the document creates it there.
func ownService(t *testing.T) suite.Namespace {
	t.Helper()
	s := suite.NewNamespace(t, "c2")
	service := suite.Service()
	service.Name = "whereami"
	s.Create("c2", service, suite.EndpointSlice(service, s.Server("c2-gw")))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
		defer cancel()
		_, err := suite.TryPlugin(ctx, "unexport", service.Name, "-n", s.Name)
		_, errDelete := suite.TryKubectl(ctx, "--context", lab.ContextKarmada, "delete", "namespace", s.Name,
			"--ignore-not-found")
		if err := errors.Join(err, errDelete); err != nil {
			t.Error(err)
		}
	})
	return s
}

// shellCommands are those of a document's fenced blocks of shell, continued lines joined and comments left out.
func shellCommands(markdown string) []string {
	var out []string
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllStringSubmatch(markdown, -1) {
		joined := strings.ReplaceAll(block[1], "\\\n", " ")
		for line := range strings.Lines(joined) {
			command, _, _ := strings.Cut(line, " #")
			if command = strings.Join(strings.Fields(command), " "); command != "" && !strings.HasPrefix(command, "#") {
				out = append(out, command)
			}
		}
	}
	return out
}

// reader is somebody who follows a document: a directory with kubeconfig files, and kubectl with the plugin.
type reader struct {
	root string
	dir  string
	env  []string
	// namespace of the reader's own service, for the documents' sample.
	namespace string
}

func newReader(t *testing.T, root, current, namespace string) *reader {
	t.Helper()
	r := &reader{root: root, dir: t.TempDir(), namespace: namespace}
	config, err := clientcmd.LoadFromFile(suite.Lab().Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.Contexts["karmada-apiserver"] = config.Contexts[lab.ContextKarmada]
	config.Contexts["karmada-host"] = config.Contexts["c1"]
	config.CurrentContext = current
	for _, file := range []string{"kubeconfig", "karmada.config", "host.config"} {
		if err := clientcmd.WriteToFile(*config, filepath.Join(r.dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(r.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	const completion = "kubectl_complete-karmada-sealane"
	for name, program := range map[string]string{
		"kubectl": suite.Lab().Tool("kubectl"), "kubectl-karmada-sealane": suite.PluginPath(),
		completion: filepath.Join(root, "cmd", "kubectl-karmada-sealane", "completion", completion),
	} {
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	r.env = append(os.Environ(), "KUBECONFIG="+filepath.Join(r.dir, "kubeconfig"), "PATH="+bin+":"+os.Getenv("PATH"))
	return r
}

// run runs a command as the reader would.
func (r *reader) run(t *testing.T, command string) {
	t.Helper()
	dir := r.dir
	command = strings.NewReplacer("<node>", "c1-gw", " /usr/local/bin/", " "+t.TempDir(), sample,
		" -n "+r.namespace, " --duration 5s", " --duration 1s",
		// the members of Karmada's local-up script
		"member1", "c1", "member2", "c2", "member3", "c3").Replace(command)
	switch program, rest, _ := strings.Cut(command, " "); {
	case program == "make":
		// What it would do: the lab and the tests are running already.
		command, dir = "make -n "+rest, r.root
	case program == "ip" || program == "nft":
		out, err := suite.Lab().InNode(t.Context(), "c1-gw", "bash", "-euo", "pipefail", "-c", command)
		if err != nil || len(out) == 0 {
			t.Errorf("on a node: %v: %q", err, out)
		}
		return
	case strings.HasPrefix(rest, "karmada sealane install"):
		command += fmt.Sprintf(" --controller-image=%s --agent-image=%s --dns-image=%s",
			lab.ImageController, lab.ImageAgent, lab.ImageDNS)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", command)
	cmd.Dir, cmd.Env = dir, r.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", command, err, out)
	}
}
