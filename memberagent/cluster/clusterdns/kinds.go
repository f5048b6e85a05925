// SPDX-License-Identifier: Apache-2.0

package clusterdns

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// A driver changes the object by which one kind of cluster DNS is told what to forward. It reads and writes nothing
// else, and leaves the objects that it is given as they are.
type driver interface {
	// wire returns the object as it should be for f. Names of addresses are forwarded where that takes none away;
	// unforwarded says why not. With an error there may be an object all the same: what has to go at once.
	wire(have client.Object, f Forward) (want client.Object, unforwarded, err error)
	// unwire returns the object without what is Sealane's; nil where it should go altogether.
	unwire(have client.Object) (want client.Object, err error)
	// byHand says what a person adds to the object for f, and where.
	byHand(have client.Object, f Forward) string
}

// The objects that are changed. Those in kube-system, and the names, are what the agent has rights for.
const (
	corefileKey = "Corefile"
	// importedKey of ConfigMap coredns-custom: "*.server" is imported.
	importedKey = "sealane.server"

	defaultName  = "coredns"
	importedName = "coredns-custom"
	stubsName    = "kube-dns"
	nodeName     = "node-local-dns"
)

func inKubeSystem(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: name}
}

// Target is one object of the cluster's DNS.
type Target struct {
	driver driver
	// What the object is, for people: "the Corefile in ConfigMap kube-system/coredns".
	What string
	// Have is the object as it is. One that is to be created has no resourceVersion.
	Have client.Object
	// Off says that the domains are forwarded by others: of this one only what Sealane left there is removed.
	Off bool

	// beside says that the domains must be forwarded by another target, too.
	beside bool
}

// wired by a Corefile, the marked block being at its start.
type wiredCorefile struct{}

func (wiredCorefile) wire(have client.Object, f Forward) (want client.Object, unforwarded, err error) {
	text := dataOf(have)[corefileKey]
	with, unforwarded, err := Add(text, f)
	if err == nil {
		return withData(have, corefileKey, with), unforwarded, nil
	}
	if without, broken := Remove(text); broken == nil && TakesClusterDomain(text, f.ClusterDomain) {
		return withData(have, corefileKey, without), nil, err
	}
	return nil, nil, err
}

func (wiredCorefile) unwire(have client.Object) (client.Object, error) {
	return withoutBlock(have, corefileKey)
}

func (wiredCorefile) byHand(have client.Object, f Forward) string {
	return "to the Corefile, outside of other server blocks:\n" + f.byHand(dataOf(have)[corefileKey])
}

// wired by a file that the Corefile imports. Its ConfigMap is made where there is none: CoreDNS mounts it if it is
// there.
type wiredImport struct {
	// corefile that imports the file.
	corefile string
}

// errNoAddressesImported is why PTR queries are not forwarded by an imported file.
var errNoAddressesImported = errors.New("a file that the Corefile imports forwards no names of addresses")

func (w wiredImport) wire(have client.Object, f Forward) (want client.Object, unforwarded, err error) {
	corefile, err := Remove(w.corefile)
	if err != nil {
		return nil, nil, err
	}
	served, err := ServedBy(corefile)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrInvalidCorefile, err)
	}
	for _, key := range sortedKeys(dataOf(have)) {
		text := dataOf(have)[key]
		switch {
		case key == importedKey:
			continue
		case strings.HasSuffix(key, ".override"):
			text = ".:53 {\n" + text + "\n}\n"
		case !strings.HasSuffix(key, ".server"):
			continue
		}
		more, err := ServedBy(text)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: key %s: %w", ErrInvalidCorefile, key, err)
		}
		served = append(served, more...)
	}
	f.Elsewhere, f.NoAddresses = served, errNoAddressesImported
	// The file is all Sealane's.
	text, unforwarded, err := Add("", f)
	if err != nil {
		return nil, nil, err
	}
	if text == "" {
		want, err := w.unwire(have)
		return want, unforwarded, err
	}
	return withData(have, importedKey, text), unforwarded, nil
}

func (wiredImport) unwire(have client.Object) (client.Object, error) {
	if _, ok := dataOf(have)[importedKey]; !ok {
		return have, nil
	}
	if have.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && len(dataOf(have)) == 1 {
		return nil, nil //nolint:nilnil // gone is what it should be
	}
	out := have.DeepCopyObject().(*corev1.ConfigMap)
	delete(out.Data, importedKey)
	return out, nil
}

func (w wiredImport) byHand(_ client.Object, f Forward) string {
	return "as a key that ends in .server:\n" + f.byHand(w.corefile)
}

// byHand is the block without marks, for this Corefile.
func (f Forward) byHand(corefile string) string {
	served, err := ServedBy(corefile)
	if err != nil {
		served = nil // the usual port
	}
	text := f.block(portOf(served), reverse{})
	return strings.TrimSuffix(strings.TrimPrefix(text, begin+"\n"), end+"\n")
}

// importsServers says whether a Corefile imports the files *.server of a directory named custom, as those of k3s
// (/etc/coredns/custom/*.server) and AKS (custom/*.server) do.
func importsServers(corefile string) bool {
	depth := 0
	for line := range strings.Lines(corefile) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if depth == 0 && len(words) == 2 && words[0] == "import" &&
			strings.HasSuffix("/"+strings.Trim(words[1], `"`), "/custom/*.server") {
			return true
		}
		depth += strings.Count(line, "{") - strings.Count(line, "}")
	}
	return false
}

// dataOf a ConfigMap.
func dataOf(o client.Object) map[string]string {
	if cm, ok := o.(*corev1.ConfigMap); ok {
		return cm.Data
	}
	return nil
}

// withData returns a copy of a ConfigMap with another text in one key.
func withData(o client.Object, key, text string) client.Object {
	out := o.DeepCopyObject().(*corev1.ConfigMap)
	if out.Data == nil {
		out.Data = map[string]string{}
	}
	out.Data[key] = text
	return out
}

func withoutBlock(have client.Object, key string) (client.Object, error) {
	text, ok := dataOf(have)[key]
	if !ok {
		return have, nil
	}
	without, err := Remove(text)
	if err != nil {
		return nil, err
	}
	return withData(have, key, without), nil
}

func sortedKeys(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
