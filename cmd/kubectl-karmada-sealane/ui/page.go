// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

//go:embed page
var pageFiles embed.FS

// page is one document that loads nothing, and the policy that keeps it so.
type page struct {
	document []byte
	policy   string
}

// newPage puts the page's style and scripts into its document. The policy allows them by their hashes, and no others.
func newPage() (page, error) {
	document, err := pageFiles.ReadFile("page/index.html")
	if err != nil {
		return page{}, fmt.Errorf("read the page: %w", err)
	}
	text := string(document)
	hashes := map[string]string{}
	for _, part := range []struct {
		mark  string
		files []string
	}{
		{"@style@", []string{"style.css"}},
		{"@script@", []string{"dom.js", "map.js", "tables.js", "details.js", "main.js"}},
	} {
		var content strings.Builder
		for _, file := range part.files {
			data, err := pageFiles.ReadFile("page/" + file)
			if err != nil {
				return page{}, fmt.Errorf("read the page: %w", err)
			}
			content.Write(data)
		}
		sum := sha256.Sum256([]byte(content.String()))
		hashes[part.mark] = "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		text = strings.Replace(text, part.mark, content.String(), 1)
	}
	return page{document: []byte(text), policy: "default-src 'none'; script-src " + hashes["@script@"] +
		"; style-src " + hashes["@style@"] + "; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
		"frame-ancestors 'none'"}, nil
}

// secure sets what every answer has.
func (p page) secure(h http.Header) {
	for name, value := range map[string]string{
		"Content-Security-Policy":      p.policy,
		"Cache-Control":                "no-store",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Referrer-Policy":              "no-referrer",
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
	} {
		h.Set(name, value)
	}
}

func (p page) serve(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(p.document) // the browser may be gone
}
