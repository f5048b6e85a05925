// SPDX-License-Identifier: Apache-2.0

package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/internal/redact"
)

// The keys and the token are made up for these tests.
const (
	private = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk="
	public  = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg="
	other   = "TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0="
	token   = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJlLW9mLWl0"
	body    = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7"
)

// TestTextsLoseWhatOpensSomething, whatever is around it.
func TestTextsLoseWhatOpensSomething(t *testing.T) {
	key := "-----BEGIN RSA PRIVATE KEY-----\n" + body + "\n-----END RSA PRIVATE KEY-----"
	for _, c := range []struct{ name, text, secret, want string }{
		{"a key", "a " + key + " b", body, "a [redacted] b"},
		{"a key's start", "a " + key[:60], body[:20], "a [redacted]"},
		{"a key's end", "a\n" + key[40:], body[10:], "a\n[redacted]"},
		{"a key in JSON", `{"msg":"` + strings.ReplaceAll(key, "\n", `\n`) + `","b":1}`, body, `{"msg":"[redacted]","b":1}`},
		{"a key's end in JSON", `"` + strings.ReplaceAll(key[40:], "\n", `\n`) + `"`, body[10:], `"[redacted]"`},
		{"a kubeconfig", "x: " + base64.StdEncoding.EncodeToString([]byte(key)), "LS0tLS1CRUdJTi", "x: [redacted]"},
		{"a JWT", "said " + token + ", twice", token[:30], "said [redacted], twice"},
		{"an opaque bearer token", "Authorization: Bearer abcdef.0123456789 ok", "0123456789", "[redacted] ok"},
		{"of another case", "authorization: bearer 0123456789", "0123456789", ""},
		{"in a header of JSON", `{"Authorization":["Bearer 0123456789"]}`, "0123456789", `"]}`},
		{"a token by name", "token: 0123.abc next", "0123.abc", "token: [redacted] next"},
		{"in quotes", `bootstrap_token = "01 23" next`, "01 23", "[redacted] next"},
		{"in JSON", `{"a":"b","refreshToken":"0123","c":"d"}`, "0123", `{"a":"b","refreshToken":[redacted],"c":"d"}`},
		{"in JSON in JSON", `"{\"password\":\"01\",\"a\":1}"`, "01", `\"a\":1}"`},
		{"a flag", "kubeadm join --token 01ab.02cd 10.0.0.1", "01ab", "--token [redacted] 10.0.0.1"},
		{"a flag with =", "x --etcd-password=01ab y", "01ab", "--etcd-password=[redacted] y"},
		{"a flag in a list", `["server","--token","01ab","--v"]`, "01ab", `"--token",[redacted],"--v"]`},
		{"a URL", "proxy http://me:01ab@proxy:3128/ failed", "01ab", "proxy http://[redacted]@proxy:3128/ failed"},
		{"WireGuard's key", "key " + private + " of", private, "key [redacted] of"},
		{"in a line of wg", "private_key=" + strings.Repeat("0a", 32), "0a0a", "private_key=[redacted]"},
		{"a preshared key", "preshared key: " + private, private, "preshared key: [redacted]"},
	} {
		got := redact.New(public).Text(c.text)
		if strings.Contains(got, c.secret) || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q became %q, want %q and no %q", c.name, c.text, got, c.want, c.secret)
		}
	}
}

// TestTextsKeepTheRest: support reads them.
func TestTextsKeepTheRest(t *testing.T) {
	for _, text := range []string{
		`{"time":"2026-01-02T03:04:05Z","level":"INFO","msg":"peer","peer":"` + public + `","node":"c1-w1"}`,
		"kubeconfig.conf: tokens are read from a file",
		"image registry.example.org/sealane/agent@sha256:" + strings.Repeat("0a", 32),
		"token is expired", "the secret is gone", "secrets is forbidden", "https://10.0.0.1:6443/api",
		"fd00:1234::1/64 dev sl-c0 via 10.0.0.1",
	} {
		if got := redact.New(public).Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// TestObjectsLoseWhatOpensSomething by the names of fields and by their values, at any depth.
func TestObjectsLoseWhatOpensSomething(t *testing.T) {
	const text = `{"kind":"DaemonSet","metadata":{"name":"web","annotations":{
	"kubectl.kubernetes.io/last-applied-configuration":"{\"secret-1\":1}","example.org/join-token":"secret-2",
	"note":"kept-1"}},
	"spec":{"containers":[{"env":[{"name":"A","value":"secret-3"},
	{"name":"B","valueFrom":{"secretKeyRef":{"name":"kept-2"}}}],
	"args":["--token","secret-10","kept-3","--password=secret-4"]}],"publicKey":"` + public + `",
	"message":"{\"publicKey\":\"` + other + `\"}","other":"` + private + `",
	"manifests":[{"kind":"Secret","metadata":{"name":"kept-4"},"data":{"a":"secret-5"},"stringData":{"b":"secret-6"}}],
	"proxyHeader":{"X":"secret-7"},"proxyURL":"http://u:secret-8@p","token":"secret-9","tokens":7,"on":true}}`
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	redact.New(redact.PublicKeys(o)...).Object(o)
	out, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"secret-", private} {
		if strings.Contains(string(out), secret) {
			t.Errorf("%s is still in %s", secret, out)
		}
	}
	for _, kept := range []string{"kept-1", "kept-2", "kept-3", "kept-4", public, other, `"tokens":7`, `"on":true`} {
		if !strings.Contains(string(out), kept) {
			t.Errorf("%s is not in %s", kept, out)
		}
	}
}

// FuzzText: a token stays in no text, whatever is around it.
func FuzzText(f *testing.F) {
	f.Add("a: ", "\n")
	f.Add(`{"x":"`, `"}`)
	f.Add("-----BEGIN", "PRIVATE KEY-----")
	f.Fuzz(func(t *testing.T, before, after string) {
		if got := redact.New().Text(before + " " + token + " " + after); strings.Contains(got, token) {
			t.Errorf("%q", got)
		}
	})
}
