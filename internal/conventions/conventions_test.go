// SPDX-License-Identifier: Apache-2.0

package conventions

import (
	"bufio"
	"cmp"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// root is the source tree.
const root = "../.."

// settings are those of golangci-lint that these tests check.
type settings struct {
	Linters struct {
		Settings struct {
			Depguard struct {
				Rules map[string]rule
			}
			LLL struct {
				LineLength int `json:"line-length"`
				TabWidth   int `json:"tab-width"`
			} `json:"lll"`
		}
		Exclusions struct {
			Rules []struct {
				Path, Source string
				Linters      []string
			}
		}
	}
}

// excluded tells whether a linter does not look at a line of a file.
func (s settings) excluded(linter, file, line string) bool {
	for _, r := range s.Linters.Exclusions.Rules {
		if slices.Contains(r.Linters, linter) && regexp.MustCompile(r.Path).MatchString(file) &&
			regexp.MustCompile(r.Source).MatchString(line) {
			return true
		}
	}
	return false
}

// rule forbids imports to some files.
type rule struct {
	Files []string
	Deny  []struct{ Pkg, Desc string }
}

func readSettings(t *testing.T) settings {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var s settings
	if err := yaml.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Linters.Settings.Depguard.Rules) == 0 || s.Linters.Settings.LLL.LineLength == 0 {
		t.Fatal("found no import directions or no line length in .golangci.yml")
	}
	return s
}

// goFiles lists the Go files of the source tree, relative to it, that are written by hand.
func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case d.IsDir() && name != root && (strings.HasPrefix(base, ".") || base == "bin"):
			return filepath.SkipDir
		case strings.HasSuffix(base, ".go") && !strings.HasPrefix(base, "zz_generated"):
			relative, err := filepath.Rel(root, name)
			files = append(files, filepath.ToSlash(relative))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// applies tells whether a rule is for a file: one of its patterns matches and none that begins with "!" does. "$test"
// stands for test files, "**" for any number of directories, "*" for anything within a name.
func (r rule) applies(file string) bool {
	found := false
	for _, pattern := range r.Files {
		excluded := strings.HasPrefix(pattern, "!")
		pattern = strings.TrimPrefix(pattern, "!")
		matches := pattern == "$test" && strings.HasSuffix(file, "_test.go") || matchPath(pattern, file)
		if matches && excluded {
			return false
		}
		found = found || matches
	}
	return found
}

func matchPath(pattern, file string) bool {
	expression := regexp.QuoteMeta(pattern)
	for _, r := range []struct{ from, to string }{
		{`\*\*/`, `(?:.*/)?`}, {`\*\*`, `.*`}, {`\*`, `[^/]*`},
	} {
		expression = strings.ReplaceAll(expression, r.from, r.to)
	}
	return regexp.MustCompile("^" + expression + "$").MatchString(file)
}

// denied returns the reason why a file under the rule may not import a package, or "". As for depguard, an entry that
// ends with "$" is that package alone, any other is a prefix.
func (r rule) denied(imported string) string {
	for _, d := range r.Deny {
		exact, isExact := strings.CutSuffix(d.Pkg, "$")
		if isExact && imported == exact || !isExact && strings.HasPrefix(imported, d.Pkg) {
			return cmp.Or(d.Desc, "denied")
		}
	}
	return ""
}

func TestImportDirections(t *testing.T) {
	rules, files := readSettings(t).Linters.Settings.Depguard.Rules, goFiles(t)
	for name, r := range rules {
		if !slices.ContainsFunc(files, r.applies) {
			t.Errorf("rule %s: no file matches %q", name, r.Files)
		}
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for name, r := range rules {
			if !r.applies(file) {
				continue
			}
			for _, i := range parsed.Imports {
				imported, err := strconv.Unquote(i.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				if reason := r.denied(imported); reason != "" {
					t.Errorf("%s imports %s: %s (rule %s)", file, imported, reason, name)
				}
			}
		}
	}
}

func TestLinesAreNotTooLong(t *testing.T) {
	s := readSettings(t)
	lll := s.Linters.Settings.LLL
	tab := strings.Repeat(" ", max(lll.TabWidth, 1))
	for _, file := range goFiles(t) {
		f, err := os.Open(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(f)
		for number := 1; lines.Scan(); number++ {
			line := lines.Text()
			length := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", tab))
			if length > lll.LineLength && !strings.HasPrefix(line, "//go:") && !s.excluded("lll", file, line) {
				t.Errorf("%s:%d has %d columns, at most %d are allowed", file, number, length, lll.LineLength)
			}
		}
		if err := lines.Err(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		_ = f.Close()
	}
}

func TestRulesMatchAsDepguardDoes(t *testing.T) {
	pure := rule{Files: []string{"**/dataplane/plan/*.go", "!$test"}}
	for file, want := range map[string]bool{
		"dataplane/plan/plan.go": true, "dataplane/plan/plan_test.go": false, "dataplane/plan/sub/x.go": false,
		"dataplane/planner/x.go": false, "x/dataplane/plan/x.go": true,
	} {
		if got := pure.applies(file); got != want {
			t.Errorf("%s: applies is %t, expected %t", file, got, want)
		}
	}
	r := rule{Deny: []struct{ Pkg, Desc string }{{"os$", "pure"}, {"k8s.io/client-go", "pure"}}}
	for imported, want := range map[string]string{
		"os": "pure", "os/exec": "", "k8s.io/client-go/kubernetes": "pure", "k8s.io/api/core/v1": "",
	} {
		if got := r.denied(imported); got != want {
			t.Errorf("%s: denied is %q, expected %q", imported, got, want)
		}
	}
}

// TestDefaultsOfTheMakefileAreWhole: a comma in what $(or) falls back to begins another argument, which nobody sees.
func TestDefaultsOfTheMakefileAreWhole(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	defaults := regexp.MustCompile(`\$\(or \$\([A-Z]+\),([^()]|\$\(comma\))*\)`).FindAllString(string(text), -1)
	if len(defaults) == 0 {
		t.Fatal("found no defaults in the Makefile")
	}
	for _, d := range defaults {
		if strings.Count(d, ",") > 1 {
			t.Errorf("make takes %s to be no more than what stands before the second comma: write $(comma)", d)
		}
	}
}
