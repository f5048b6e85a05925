// SPDX-License-Identifier: Apache-2.0

// Package clusterdns makes the cluster's own DNS forward Sealane's domains to Sealane's DNS, with a marked
// block in CoreDNS's Corefile. What is outside the marks is never touched.
package clusterdns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The marks, each a line of its own.
const (
	begin = "# BEGIN sealane"
	end   = "# END sealane"
)

// Forward is what the block says.
type Forward struct {
	// Domains without a trailing dot.
	Domains []string
	// To is the address of Sealane's DNS Service.
	To netip.Addr
}

// ErrMarkers says that the marks are not one block, so that nobody can tell what is Sealane's.
var ErrMarkers = errors.New("the marks of Sealane's block are broken")

// ErrDomainTaken says that another server block answers a domain already. CoreDNS refuses to start with
// two.
var ErrDomainTaken = errors.New("another server block serves the domain")

// Add returns the Corefile with the block for f, at its start or in place of the block that is there.
func Add(corefile string, f Forward) (string, error) {
	before, after, found, err := split(corefile)
	if err != nil {
		return "", err
	}
	port := "53"
	for _, key := range serverKeys(before + after) {
		zone, p := zoneAndPort(key)
		if zone == "." {
			port = p
		}
		if slices.Contains(f.Domains, strings.TrimSuffix(zone, ".")) {
			return "", fmt.Errorf("%w: %s", ErrDomainTaken, key)
		}
	}
	block := f.block(port)
	if found {
		return before + block + after, nil
	}
	return block + corefile, nil
}

// Remove returns the Corefile without the block.
func Remove(corefile string) (string, error) {
	before, after, _, err := split(corefile)
	if err != nil {
		return "", err
	}
	return before + after, nil
}

func (f Forward) block(port string) string {
	var b strings.Builder
	b.WriteString(begin + "\n")
	for i, d := range f.Domains {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(d + ":" + port)
	}
	// No cache: a denial that is remembered would hide a service that has just been exported.
	fmt.Fprintf(&b, " {\n    errors\n    forward . %s\n}\n%s\n", f.To, end)
	return b.String()
}

// split cuts the block, with its marks and the newline after it, out of a Corefile.
func split(corefile string) (before, after string, found bool, err error) {
	start, stop := -1, -1
	for offset := 0; offset < len(corefile); {
		line, _, _ := strings.Cut(corefile[offset:], "\n")
		next := min(offset+len(line)+1, len(corefile))
		switch strings.TrimSpace(line) {
		case begin:
			if start >= 0 {
				return "", "", false, fmt.Errorf("%w: %q twice", ErrMarkers, begin)
			}
			start = offset
		case end:
			if start < 0 || stop >= 0 {
				return "", "", false, fmt.Errorf("%w: %q without %q before it", ErrMarkers, end, begin)
			}
			stop = next
		}
		offset = next
	}
	switch {
	case start < 0:
		return corefile, "", false, nil
	case stop < 0:
		return "", "", false, fmt.Errorf("%w: %q without %q", ErrMarkers, begin, end)
	}
	return corefile[:start], corefile[stop:], true, nil
}

// serverKeys returns the keys of all server blocks: the words outside braces, but snippets.
func serverKeys(corefile string) []string {
	var out []string
	depth := 0
	for line := range strings.Lines(corefile) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "#") {
				break
			}
			switch {
			case word == "{" || (depth == 0 && strings.HasSuffix(word, "{")):
				depth++
				if key := strings.TrimSuffix(word, "{"); key != "" {
					out = append(out, key)
				}
			case word == "}":
				depth = max(depth-1, 0)
			case depth == 0 && !strings.HasPrefix(word, "("):
				out = append(out, strings.TrimSuffix(word, ","))
			case strings.HasSuffix(word, "{"):
				// "{$ENV}" and the like never end so; a directive's brace does.
				depth++
			}
		}
	}
	return out
}

// zoneAndPort parses a key such as "dns://example.org:1053", ".:53" or "example.org.".
func zoneAndPort(key string) (zone, port string) {
	if _, rest, ok := strings.Cut(key, "://"); ok {
		key = rest
	}
	zone, port = key, "53"
	if i := strings.LastIndexByte(key, ':'); i >= 0 && isPort(key[i+1:]) {
		zone, port = key[:i], key[i+1:]
	}
	if zone == "" {
		zone = "."
	}
	if zone != "." {
		zone = strings.ToLower(strings.TrimSuffix(zone, "."))
	}
	return zone, port
}

func isPort(s string) bool {
	return s != "" && len(s) <= 5 && strings.Trim(s, "0123456789") == ""
}
