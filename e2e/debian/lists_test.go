// SPDX-License-Identifier: Apache-2.0

package debian

import "testing"

// TestSourceOfAnotherSuite: what the machine's source says of mirror, keys and components holds for the other suite.
func TestSourceOfAnotherSuite(t *testing.T) {
	const stanzas = `# A comment of its own.

Types: deb
URIs: http://mirror.example/security
Suites: bookworm-security
Components: main

Types: deb deb-src
# A comment within.
URIs: http://mirror.example/debian
Suites: bookworm
 bookworm-updates
Components: main contrib
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 -----END PGP PUBLIC KEY BLOCK-----
`
	const lines = "# first\ndeb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib\n" +
		"deb http://mirror.example/debian bookworm main\n"
	for _, c := range []struct {
		entry      entry
		text, want string
	}{
		{entry{"a.sources", 2}, stanzas, `Types: deb deb-src
URIs: http://mirror.example/debian
Suites: new
Components: main contrib
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 -----END PGP PUBLIC KEY BLOCK-----
`},
		{entry{"a.sources", 1}, stanzas, "Types: deb\nURIs: http://mirror.example/security\nSuites: new\nComponents: main\n"},
		{entry{"a.sources", 3}, stanzas, ""},
		{entry{"a.list", 2}, lines, "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian new main contrib\n"},
		{entry{"a.list", 3}, lines, "deb http://mirror.example/debian new main\n"},
		{entry{"a.list", 1}, lines, "" /* a comment has no suite */},
		{entry{"a.list", 9}, lines, ""},
	} {
		got, err := c.entry.withSuite(c.text, "new")
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%v: %v\n%s\nwant\n%s", c.entry, err, got, c.want)
		}
	}
}
