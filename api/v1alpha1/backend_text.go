// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// A Backend is a line of text in JSON, and a BackendPort is one: an API server, Karmada and each agent handle what a
// Bundle carries value by value, many times over, and nearly all values of a Bundle are those of its backends. Objects
// with the names of the fields, as earlier versions write, are read just the same.

// The words of a Backend's text, after its address. What is not said is that it is ready and serves.
const (
	keyNode     = "node"
	keyZone     = "zone"
	keyHostname = "hostname"
	keyGlobalIP = "globalIP"

	wordNotReady    = "notReady"
	wordNotServing  = "notServing"
	wordTerminating = "terminating"
)

// MarshalJSON returns a Backend as text, such as "10.1.0.7 node=worker-1 zone=a notReady". What would not be read
// again as it is, as a name with a blank, is an object.
func (b Backend) MarshalJSON() ([]byte, error) {
	type object Backend
	if !word(b.IP) {
		return json.Marshal(object(b))
	}
	var text strings.Builder
	text.WriteString(b.IP)
	for _, f := range [...]struct{ key, value string }{
		{keyNode, b.Node}, {keyZone, b.Zone}, {keyHostname, b.Hostname}, {keyGlobalIP, b.GlobalIP},
	} {
		if f.value == "" {
			continue
		}
		if !word(f.value) {
			return json.Marshal(object(b))
		}
		text.WriteString(" " + f.key + "=" + f.value)
	}
	for _, f := range [...]struct {
		said bool
		word string
	}{{!b.Ready, wordNotReady}, {!b.Serving, wordNotServing}, {b.Terminating, wordTerminating}} {
		if f.said {
			text.WriteString(" " + f.word)
		}
	}
	return json.Marshal(text.String())
}

// UnmarshalJSON reads either form. Words that it does not know are left to later versions, and what is no address is
// for who validates it.
func (b *Backend) UnmarshalJSON(data []byte) error {
	type object Backend
	text, ok, err := textOf(data)
	if !ok {
		return json.Unmarshal(data, (*object)(b))
	}
	*b = Backend{Ready: true, Serving: true}
	b.IP, text, _ = strings.Cut(text, " ")
	for f := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(f, "=")
		switch key {
		case keyNode:
			b.Node = value
		case keyZone:
			b.Zone = value
		case keyHostname:
			b.Hostname = value
		case keyGlobalIP:
			b.GlobalIP = value
		case wordNotReady:
			b.Ready = false
		case wordNotServing:
			b.Serving = false
		case wordTerminating:
			b.Terminating = true
		}
	}
	return err
}

// MarshalJSON returns a BackendPort as text: "http 8080/TCP", or "8080/TCP" if it has no name.
func (p BackendPort) MarshalJSON() ([]byte, error) {
	type object BackendPort
	if p.Name != "" && !word(p.Name) || !word(string(p.Protocol)) {
		return json.Marshal(object(p))
	}
	text := strconv.Itoa(int(p.Port)) + "/" + string(p.Protocol)
	if p.Name != "" {
		text = p.Name + " " + text
	}
	return json.Marshal(text)
}

// UnmarshalJSON reads either form. What has no number is a port of 0, for who validates it.
func (p *BackendPort) UnmarshalJSON(data []byte) error {
	type object BackendPort
	text, ok, err := textOf(data)
	if !ok {
		return json.Unmarshal(data, (*object)(p))
	}
	*p = BackendPort{}
	if name, rest, named := strings.Cut(text, " "); named {
		p.Name, text = name, rest
	}
	number, protocol, _ := strings.Cut(text, "/")
	if n, bad := strconv.ParseInt(number, 10, 32); bad == nil {
		p.Port = int32(n)
	}
	p.Protocol = corev1.Protocol(protocol)
	return err
}

// word says that a text is one word of a line.
func word(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '=' || r > '~' })
}

// textOf decodes a string in JSON, if it is one.
func textOf(data []byte) (text string, ok bool, err error) {
	if len(data) < 2 || data[0] != '"' {
		return "", false, nil
	}
	inner := data[1 : len(data)-1]
	for _, c := range inner {
		if c < ' ' || c > '~' || c == '\\' || c == '"' {
			err = json.Unmarshal(data, &text)
			return text, true, err
		}
	}
	return string(inner), true, nil
}
