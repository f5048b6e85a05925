// SPDX-License-Identifier: Apache-2.0

package clusterdns

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/dnszone"
)

// stubKey of ConfigMap kube-dns holds a JSON object: a list of addresses by domain. stubAnnotation has the members of
// it that are Sealane's, as they stand at its start, so that they can be taken out to the byte.
const (
	stubKey        = "stubDomains"
	stubAnnotation = "sealane.io/stub-domains"
)

// wired by the stub domains of kube-dns. Its ConfigMap is made where there is none: kube-dns mounts it if it is there.
type wiredStubs struct{}

// errNoAddressesByStubs is why PTR queries are not forwarded by stub domains.
var errNoAddressesByStubs = errors.New("kube-dns answers names of addresses itself")

func (w wiredStubs) wire(have client.Object, f Forward) (want client.Object, unforwarded, err error) {
	rest, err := w.others(have)
	if err != nil {
		return nil, nil, err
	}
	stubs := map[string][]string{}
	if err := json.Unmarshal([]byte(rest), &stubs); err != nil {
		return nil, nil, fmt.Errorf("%w: parse %s: %w", ErrInvalidCorefile, stubKey, err)
	}
	served := []Served{{Zone: "cluster.local", By: "kube-dns", Cluster: true}}
	for domain, servers := range stubs {
		served = append(served, Served{
			Zone: dnszone.Normalize(domain), By: stubKey, Block: true, To: servers,
		})
	}
	f.Domains, served = f.notByHand(served)
	if err := f.taken(served); err != nil {
		return nil, nil, err
	}
	ours := make([]string, 0, len(f.Domains))
	for _, domain := range f.Domains {
		ours = append(ours, fmt.Sprintf("%q: [%q]", domain, f.To))
	}
	return w.with(have, rest, strings.Join(ours, ", ")), errNoAddressesByStubs, nil
}

// others returns the stub domains without Sealane's.
func (wiredStubs) others(have client.Object) (string, error) {
	text, ok := dataOf(have)[stubKey]
	if !ok || strings.TrimSpace(text) == "" {
		return "{}", nil
	}
	ours := have.GetAnnotations()[stubAnnotation]
	if ours == "" {
		return text, nil
	}
	for _, marked := range []string{"{" + ours + ", ", "{" + ours} {
		if strings.Contains(text, marked) {
			return strings.Replace(text, marked, "{", 1), nil
		}
	}
	var stubs map[string][]string
	if err := json.Unmarshal([]byte(text), &stubs); err != nil {
		return "", fmt.Errorf("%w: parse %s: %w", ErrInvalidCorefile, stubKey, err)
	}
	// Somebody wrote all of it anew: whatever is there is theirs.
	return text, nil
}

// with returns the ConfigMap with ours before the rest of the stub domains.
func (wiredStubs) with(have client.Object, rest, ours string) client.Object {
	out := have.DeepCopyObject().(*corev1.ConfigMap)
	delete(out.Annotations, stubAnnotation)
	if len(out.Annotations) == 0 {
		out.Annotations = nil
	}
	if ours == "" {
		if out.Data[stubKey] = rest; rest == "{}" {
			delete(out.Data, stubKey)
		}
		return out
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	if out.Data == nil {
		out.Data = map[string]string{}
	}
	out.Annotations[stubAnnotation] = ours
	before, after, _ := strings.Cut(rest, "{")
	separator := ", "
	if strings.HasPrefix(strings.TrimSpace(after), "}") {
		separator = ""
	}
	out.Data[stubKey] = before + "{" + ours + separator + after
	return out
}

func (w wiredStubs) unwire(have client.Object) (client.Object, error) {
	if have.GetAnnotations()[stubAnnotation] == "" {
		return have, nil
	}
	rest, err := w.others(have)
	if err != nil {
		return nil, err
	}
	out := w.with(have, rest, "")
	if out.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && len(dataOf(out)) == 0 {
		return nil, nil //nolint:nilnil // gone is what it should be
	}
	return out, nil
}

func (wiredStubs) byHand(_ client.Object, f Forward) string {
	stubs := map[string][]string{}
	for _, domain := range f.Domains {
		stubs[domain] = []string{f.To.String()}
	}
	text, _ := json.Marshal(stubs) //nolint:errchkjson // strings alone
	return "to the members of its key " + stubKey + ":\n" + string(text)
}
