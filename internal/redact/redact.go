// SPDX-License-Identifier: Apache-2.0

// Package redact takes out of objects and texts what opens something: private and preshared keys, tokens, passwords.
// What it cannot tell from such a thing it takes out too.
package redact

import (
	"encoding/base64"
	"regexp"
	"strings"
)

// Mark stands where something was taken out.
const Mark = "[redacted]"

// Redactor keeps public keys, which by their form could be private ones.
type Redactor struct{ public map[string]bool }

// New returns a redactor that keeps these keys, in base64.
func New(public ...string) *Redactor {
	r := &Redactor{public: map[string]bool{}}
	for _, key := range public {
		r.public[key] = true
	}
	return r
}

const (
	// word is in the name of what opens something.
	word = `(?:token|passw(?:or)?d|passphrase|secret|private[_-]?key|preshared[_-]?key|psk|client[_-]?key(?:[_-]?data)?|` +
		`access[_-]?key(?:[_-]?id)?|api[_-]?key|credentials?|authorization|cookie)`
	// value of it, in quotes, which a JSON text within a text has escaped, or up to the next space.
	value = `(?:\[redacted\]|"(?:[^"\\]|\\.)*"|\\"[^"\\]*\\"|'[^']*'|[^\s"'\\,;}\]]+)`
)

var (
	// A text may begin or end within a key.
	pem = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`)
	// The backslash is that of a line end in a text within a text.
	pemEnd = regexp.MustCompile(`(?:[A-Za-z0-9+/=]{16,}(?:\\n|\s)+)*[A-Za-z0-9+/=]*(?:\\n|\s)*` +
		`-----END [A-Z0-9 ]*PRIVATE KEY-----`)
	// "-----BEGIN" in base64, as in a kubeconfig: certificates go, too.
	pemBase64 = regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/=_-]*`)
	jwt       = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,2}`)
	bearer    = regexp.MustCompile(`(?i)\b(bearer|basic)((?:\s|%20)+)[A-Za-z0-9._~+/=-]{8,}`)
	userinfo  = regexp.MustCompile(`(://)[^/\s"'@]+@`)
	// A scheme of Authorization stays before what bearer has taken out.
	assigned = regexp.MustCompile(`(?i)([\w.-]*` + word + `s?\\?["']?\s*[:=]\s*)((?:bearer|basic)\s+)?` + value)
	// A flag's value may be the next word, or the next text of a list.
	flag = regexp.MustCompile(`(?i)(--?[\w-]*` + word + `(?:\\?["']?,\s*|\s+))` + value)
	// 32 bytes in base64, as WireGuard's keys are, private and public ones.
	key = regexp.MustCompile(`[A-Za-z0-9+/_-]{42}[AEIMQUYcgkosw048]=`)
)

// Text returns a text without what opens something.
func (r *Redactor) Text(s string) string {
	if len(s) < 4 {
		return s
	}
	s = pem.ReplaceAllString(s, Mark)
	s = pemEnd.ReplaceAllString(s, Mark)
	s = pemBase64.ReplaceAllString(s, Mark)
	s = jwt.ReplaceAllString(s, Mark)
	s = bearer.ReplaceAllString(s, "${1}${2}"+Mark)
	s = userinfo.ReplaceAllString(s, "${1}"+Mark+"@")
	s = assigned.ReplaceAllString(s, "${1}${2}"+Mark)
	s = flag.ReplaceAllString(s, "${1}"+Mark)
	return key.ReplaceAllStringFunc(s, func(found string) string {
		if r.public[found] {
			return found
		}
		return Mark
	})
}

// lastApplied is the annotation with the whole object as kubectl has applied it.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Object redacts an object as JSON decodes it, and what it holds of others.
func (r *Redactor) Object(o map[string]any) { r.fields(o) }

// fields redacts texts in place. The values of environment variables go whatever they are, as do the data of Secrets.
func (r *Redactor) fields(o map[string]any) {
	secret := o["kind"] == "Secret"
	for name, v := range o {
		switch {
		case secret && (name == "data" || name == "stringData"), name == lastApplied, name == "proxyHeader":
			o[name] = Mark
			if _, is := v.(map[string]any); is {
				o[name] = map[string]any{}
			}
			continue
		case name == "env":
			environment(v)
		}
		o[name] = r.value(name, v)
	}
}

func (r *Redactor) value(name string, v any) any {
	switch v := v.(type) {
	case string:
		if opens(name) && v != "" {
			return Mark
		}
		return r.Text(v)
	case map[string]any:
		r.fields(v)
	case []any:
		for i := range v {
			// The value of a flag may be the argument after it.
			of := name
			if before, is := v[max(i-1, 0)].(string); is && i > 0 && strings.HasPrefix(before, "-") {
				of = before
			}
			v[i] = r.value(of, v[i])
		}
	}
	return v
}

// environment takes the values out of a container's variables.
func environment(v any) {
	list, _ := v.([]any) // of another shape it is no list of variables
	for _, entry := range list {
		if variable, ok := entry.(map[string]any); ok && variable["value"] != nil {
			variable["value"] = Mark
		}
	}
}

// opening are the ends of the names of fields and of keys whose value opens something.
var opening = []string{"token", "password", "passwd", "passphrase", "privatekey", "presharedkey", "clientkeydata",
	"clientkey", "apikey", "accesskey", "secretkey", "clientsecret", "secret", "authorization", "kubeconfig", "psk"}

// opens says whether by its name a text opens something.
func opens(name string) bool {
	name = strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(name))
	for _, end := range opening {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// publicKey is one in an object that another holds as a text.
var publicKey = regexp.MustCompile(`(?i)public_?key\\?":\s*\\?"([A-Za-z0-9+/]{43}=)`)

// PublicKeys are the keys of 32 bytes that fields of the name publicKey have, in an object as JSON decodes it.
func PublicKeys(v any) []string {
	var out []string
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			text, is := field.(string)
			if raw, err := base64.StdEncoding.DecodeString(text); is && err == nil && len(raw) == 32 &&
				strings.HasSuffix(strings.ToLower(name), "publickey") {
				out = append(out, text)
				continue
			}
			out = append(out, PublicKeys(field)...)
		}
	case []any:
		for _, entry := range v {
			out = append(out, PublicKeys(entry)...)
		}
	case string:
		for _, found := range publicKey.FindAllStringSubmatch(v, -1) {
			out = append(out, found[1])
		}
	}
	return out
}
