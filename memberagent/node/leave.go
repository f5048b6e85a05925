// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"

	"github.com/go-logr/logr"

	"github.com/sealane-io/sealane/dataplane/ipsec"
)

// leave runs after SIGTERM. Only when the agent is known to be uninstalled is the node cleaned.
func (a *Agent) leave(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	ask, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	switch uninstalled, err := a.cluster.Uninstalled(ask); {
	case err != nil:
		log.Info("stopping; not known to be uninstalled, so the node's network stays", "why", err.Error())
		return nil
	case !uninstalled:
		log.Info("stopping; the node's network stays")
		return nil
	}
	log.Info("uninstalled: cleaning the node")
	ctx, cancelClean := context.WithTimeout(ctx, cleanTimeout)
	defer cancelClean()
	return errors.Join(a.clean(ctx), a.snapshot.remove())
}

// clean the node of all that is Sealane's.
func (a *Agent) clean(ctx context.Context) error {
	return errors.Join(ipsec.Clean(a.ipsecDir), a.kernel.Clean(ctx))
}
