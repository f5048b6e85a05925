// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds Sealane's API: five kinds in the group sealane.io.
//
// ClusterSet and Member live on the Karmada API. Peering and Bundle are the wire: the broker writes
// their spec through a Karmada Work, the member writes their status, and Karmada reflects it into the
// Work. Gateway lives in a member and is for people and for the member's own agents.
//
// Fields are only ever added. A field that is missing means its documented default, and the broker
// fills every optional spec field before it propagates an object: a default that a member's API server
// fills in would look like drift to Karmada, which would write the object again and again.
//
// +kubebuilder:object:generate=true
// +groupName=sealane.io
package v1alpha1
