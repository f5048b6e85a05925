// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of every kind in this package.
const GroupName = "sealane.io"

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// AddToScheme registers every kind of this package with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&ClusterSet{}, &ClusterSetList{},
		&Member{}, &MemberList{},
		&Peering{}, &PeeringList{},
		&Bundle{}, &BundleList{},
		&Gateway{}, &GatewayList{},
		&GlobalIngressIP{}, &GlobalIngressIPList{},
		&GlobalEgressIP{}, &GlobalEgressIPList{},
		&ClusterGlobalEgressIP{}, &ClusterGlobalEgressIPList{},
		&GlobalAllocation{}, &GlobalAllocationList{},
		&NodeNetwork{}, &NodeNetworkList{},
		&NodeSlice{}, &NodeSliceList{},
		&ServicePolicy{}, &ServicePolicyList{},
		&ExportRecord{}, &ExportRecordList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
