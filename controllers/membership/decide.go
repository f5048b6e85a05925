// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/fleet"
)

// Finalizer on a ClusterSet holds it until its members have left.
const Finalizer = "sealane.io/members"

// Wire is how far a leaving member's Works are.
type Wire struct {
	// Works that still exist, and how many of them are not yet being deleted.
	Works, Live int
}

// Decision is what follows from a fleet.State.
type Decision struct {
	// Create, Update and Drop are Members.
	Create, Update []v1alpha1.Member
	Drop           []v1alpha1.Member
	// Withdraw are the clusters whose Works are to be deleted.
	Withdraw []string
	// Spread are the clusters that the install bundle goes to.
	Spread []string
	// Serving are members that have come to serve ServiceExport: Karmada's scheduler is to look again at the exports
	// that waited for that.
	Serving []string
	// Hold are ClusterSets that need the finalizer, Release those that are done with it.
	Hold, Release []string
}

// Decide is pure. wire tells of the members that are leaving.
func Decide(state fleet.State, wire map[string]Wire) Decision {
	var d Decision
	owners := fleet.Owners(state)
	for _, set := range state.Sets {
		if set.DeletionTimestamp.IsZero() && !slices.Contains(set.Finalizers, Finalizer) {
			d.Hold = append(d.Hold, set.Name)
		}
	}
	members := map[string]bool{}
	for _, m := range state.Members {
		members[m.Name] = true
		d.decideMember(state, m, owners[m.Name], wire[m.Name])
	}
	for i := range state.Clusters {
		c := &state.Clusters[i]
		owner := owners[c.Name]
		if owner != "" && !members[c.Name] && c.Spec.ID != "" {
			d.Create = append(d.Create, newMember(c, owner))
			d.Spread = append(d.Spread, c.Name)
		}
	}
	slices.Sort(d.Spread)
	d.decideRelease(state)
	return d
}

func newMember(c *clusterv1alpha1.Cluster, set string) v1alpha1.Member {
	return v1alpha1.Member{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name},
		Spec: v1alpha1.MemberSpec{ClusterSet: set, ClusterUID: c.Spec.ID, Phase: v1alpha1.MemberActive,
			ServesExports: fleet.ServesExports(c)},
	}
}

// decideMember walks one member on.
func (d *Decision) decideMember(state fleet.State, m v1alpha1.Member, owner string, wire Wire) {
	c := state.Cluster(m.Name)
	if c == nil || !c.DeletionTimestamp.IsZero() {
		// Unjoined under our feet: nobody is left to ask.
		d.Withdraw = append(d.Withdraw, m.Name)
		d.Drop = append(d.Drop, m)
		return
	}
	if c.Spec.ID != "" && c.Spec.ID != m.Spec.ClusterUID {
		// Another cluster under the same name: nothing known of the old one holds.
		d.Withdraw = append(d.Withdraw, m.Name)
		d.Drop = append(d.Drop, m)
		if owner != "" {
			d.Spread = append(d.Spread, m.Name)
		}
		return
	}
	if owner == m.Spec.ClusterSet {
		d.Spread = append(d.Spread, m.Name)
		was := m.Spec
		if wire.Live == wire.Works {
			m.Spec.Phase = v1alpha1.MemberActive
		}
		serves := fleet.ServesExports(c)
		m.Spec.ServesExports = m.Spec.ServesExports && serves
		if m.Spec != was {
			d.Update = append(d.Update, m)
		} else if serves && !was.ServesExports {
			d.Serving = append(d.Serving, m.Name)
		}
		return
	}
	if m.Spec.Phase != v1alpha1.MemberLeaving {
		d.Spread = append(d.Spread, m.Name)
		m.Spec.Phase = v1alpha1.MemberLeaving
		d.Update = append(d.Update, m)
		return
	}
	switch {
	case wire.Works > 0 && fleet.Released(&m):
		d.Withdraw = append(d.Withdraw, m.Name)
		d.Spread = append(d.Spread, m.Name)
	case wire.Works > 0:
		d.Spread = append(d.Spread, m.Name)
	default:
		// The policies no longer name the cluster before the record goes.
		d.Drop = append(d.Drop, m)
	}
}

// decideRelease lets a ClusterSet go that has no members any more. The last one waits until Karmada
// has taken the bundle out of every cluster: what is deleted after it could not be called back.
func (d *Decision) decideRelease(state fleet.State) {
	others := slices.ContainsFunc(state.Sets, func(s v1alpha1.ClusterSet) bool { return s.DeletionTimestamp.IsZero() })
	for _, set := range state.Sets {
		if set.DeletionTimestamp.IsZero() || !slices.Contains(set.Finalizers, Finalizer) {
			continue
		}
		empty := !slices.ContainsFunc(state.Members, func(m v1alpha1.Member) bool { return m.Spec.ClusterSet == set.Name })
		drained := true
		for _, b := range state.Bindings {
			drained = drained && (b == nil || len(b.Spec.Clusters) == 0)
		}
		if empty && (others || drained) {
			d.Release = append(d.Release, set.Name)
		}
	}
}
