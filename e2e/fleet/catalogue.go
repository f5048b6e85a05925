// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// catalogue has what the services of a fleet are called, which the simulation asks all the time: it shares the
// processors with what is measured.
type catalogue struct {
	services []named
	// inShard are the services of each shard, in the order of their names.
	inShard [shards][]int
}

type named struct {
	namespace, name string
	shard           int32
}

// catalogues by how many services and namespaces there are.
var catalogues sync.Map

func (s Size) catalogue() *catalogue {
	key := [2]int{s.Services, s.Namespaces}
	if c, ok := catalogues.Load(key); ok {
		return c.(*catalogue)
	}
	c := &catalogue{services: make([]named, s.Services)}
	for i := range c.services {
		n := nameOf(i, s.Namespaces)
		c.services[i] = n
		c.inShard[n.shard] = append(c.inShard[n.shard], i)
	}
	for _, of := range c.inShard {
		slices.SortFunc(of, func(a, b int) int {
			one, other := c.services[a], c.services[b]
			return cmp.Or(cmp.Compare(one.namespace, other.namespace), cmp.Compare(one.name, other.name))
		})
	}
	catalogues.Store(key, c)
	return c
}

func nameOf(i, namespaces int) named {
	namespace, name := fmt.Sprintf("team-%03d", i%namespaces), fmt.Sprintf("service-%05d", i)
	return named{namespace, name, v1alpha1.Shard(namespace, name, shards)}
}

// named returns what service i is called, also one that there could be.
func (s Size) named(i int) named {
	if i >= s.Services {
		return nameOf(i, s.Namespaces)
	}
	return s.catalogue().services[i]
}

// service returns the namespace and name of service i.
func (s Size) service(i int) (namespace, name string) {
	n := s.named(i)
	return n.namespace, n.name
}

// shard of service i.
func (s Size) shard(i int) int32 { return s.named(i).shard }

// index returns the service of a namespace and name.
func (s Size) index(namespace, name string) (int, bool) {
	i, err := strconv.Atoi(strings.TrimPrefix(name, "service-"))
	if err != nil || i < 0 || i >= s.Services {
		return 0, false
	}
	n := s.named(i)
	return i, n.namespace == namespace && n.name == name
}
