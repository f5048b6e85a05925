// SPDX-License-Identifier: Apache-2.0

package conventions

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestTheMetricsPageListsEveryMetric: the names of metrics are written in full wherever one is registered.
func TestTheMetricsPageListsEveryMetric(t *testing.T) {
	name := regexp.MustCompile(`^sealane_[a-z0-9_]+$`)
	registered := map[string]string{}
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "e2e/") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil && name.MatchString(text) {
					registered[text] = file
				}
			}
			return true
		})
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(sealane_[a-z0-9_]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, row[1])
		if registered[row[1]] == "" {
			t.Errorf("docs/metrics.md lists %s, which no process has", row[1])
		}
	}
	for _, metric := range slices.Sorted(maps.Keys(registered)) {
		if !slices.Contains(listed, metric) {
			t.Errorf("docs/metrics.md lacks %s of %s", metric, registered[metric])
		}
	}
	if len(listed) < 20 {
		t.Errorf("found %d metrics in docs/metrics.md", len(listed))
	}
}
