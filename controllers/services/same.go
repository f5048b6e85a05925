// SPDX-License-Identifier: Apache-2.0

package services

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// What follows compares as equality.Semantic does, some twenty times faster: each decision compares the records and
// imports of a whole shard with those in force, and nearly always they are the same.

// sameRecord says that two records say the same.
func sameRecord(a, b *v1alpha1.ExportRecordSpec) bool { return sameRecordBy(sameExport, a, b) }

// sameRecordBy compares their exports by what is given.
func sameRecordBy(same func(a, b v1alpha1.Export) bool, a, b *v1alpha1.ExportRecordSpec) bool {
	return a.Cluster == b.Cluster && a.MemberUID == b.MemberUID && a.Shard == b.Shard &&
		(identical(a.Seen, b.Seen) || slices.EqualFunc(a.Seen, b.Seen, sameSeen)) &&
		(identical(a.Exports, b.Exports) || slices.EqualFunc(a.Exports, b.Exports, same))
}

func sameSeen(a, b v1alpha1.SeenExport) bool {
	return a.Namespace == b.Namespace && a.Name == b.Name && a.CreatedAt.Equal(&b.CreatedAt) &&
		a.FirstSeen.Equal(&b.FirstSeen) && a.WithdrawnAt.Equal(b.WithdrawnAt) &&
		slices.Equal(a.ClusterIPFamilies, b.ClusterIPFamilies)
}

func sameExport(a, b v1alpha1.Export) bool {
	return sameButBackends(a, b) && sameBackends(a.Backends, b.Backends)
}

func sameButBackends(a, b v1alpha1.Export) bool {
	return a.Namespace == b.Namespace && a.Name == b.Name && a.CreatedAt.Equal(&b.CreatedAt) && a.Mode == b.Mode &&
		a.GlobalIP == b.GlobalIP && a.GlobalIPv6 == b.GlobalIPv6 && slices.Equal(a.Remarks, b.Remarks) &&
		slices.Equal(a.ClusterIPs, b.ClusterIPs) && samePointed(a.Scope, b.Scope) &&
		sameSettings(&a.Settings, &b.Settings)
}

func sameImport(a, b *v1alpha1.Import) bool { return a.Withheld == b.Withheld && sameContents(a, b) }

// sameContents compares what two imports say if none of them is withheld.
func sameContents(a, b *v1alpha1.Import) bool {
	return a.Namespace == b.Namespace && a.Name == b.Name && a.Mode == b.Mode && samePointed(a.Choice, b.Choice) &&
		sameSettings(&a.Settings, &b.Settings) && slices.EqualFunc(a.Clusters, b.Clusters, sameCluster)
}

func sameCluster(a, b v1alpha1.ImportCluster) bool {
	return a.Cluster == b.Cluster && a.CreatedAt.Equal(&b.CreatedAt) && a.Mode == b.Mode &&
		samePointed(a.Settings, b.Settings) && samePointed(a.Scope, b.Scope) && slices.Equal(a.Ports, b.Ports) &&
		slices.Equal(a.ClusterIPs, b.ClusterIPs) && samePointed(a.ReadyBackends, b.ReadyBackends) &&
		sameBackends(a.Backends, b.Backends)
}

func sameBackends(a, b []v1alpha1.Backends) bool {
	return identical(a, b) || slices.EqualFunc(a, b, func(a, b v1alpha1.Backends) bool {
		return slices.Equal(a.Ports, b.Ports) && slices.Equal(a.Addresses, b.Addresses)
	})
}

func sameSettings(a, b *v1alpha1.ServiceSettings) bool {
	return a.Type == b.Type && a.SessionAffinity == b.SessionAffinity && slices.Equal(a.IPFamilies, b.IPFamilies) &&
		samePointed(a.SessionAffinityConfig, b.SessionAffinityConfig) &&
		samePointed(a.InternalTrafficPolicy, b.InternalTrafficPolicy) &&
		samePointed(a.TrafficDistribution, b.TrafficDistribution) &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		slices.EqualFunc(a.Ports, b.Ports, func(a, b v1alpha1.ServicePort) bool {
			return a.Name == b.Name && a.Protocol == b.Protocol && a.Port == b.Port &&
				samePointed(a.AppProtocol, b.AppProtocol)
		})
}

// samePointed compares what two pointers lead to, which is mostly nothing.
func samePointed[T any](a, b *T) bool { return a == b || equality.Semantic.DeepEqual(a, b) }
