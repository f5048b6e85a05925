// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
)

const (
	// echoPatience is how long a cluster that turned Ready has to answer what it was sent before.
	echoPatience = 5 * time.Second
	// echoWindow after which a cluster that turned Ready is one like any other.
	echoWindow = time.Minute
)

// Refresh says whether to send something anew that a cluster has not answered, and otherwise when to
// ask again (0: never). After an outage Karmada backs off for up to 1000 seconds; a change of the Work
// makes it try at once. before is when it was last sent anew for the same reason.
func Refresh(cluster *clusterv1alpha1.Cluster, answered bool, before, now time.Time) (bool, time.Duration) {
	if cluster == nil || answered {
		return false, 0
	}
	ready := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1alpha1.ClusterConditionReady)
	if ready == nil || ready.Status != "True" {
		return false, 0
	}
	since := now.Sub(ready.LastTransitionTime.Time)
	switch {
	case since > echoWindow || !before.Before(ready.LastTransitionTime.Time):
		return false, 0
	case since < echoPatience:
		return false, echoPatience - since
	}
	return true, 0
}
