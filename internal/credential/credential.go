// SPDX-License-Identifier: Apache-2.0

// Package credential keeps the controller's token on the Karmada API from expiring: whoever holds the lease asks
// for a new one when half of the old one's time is over, and stores it where all replicas read it.
package credential

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// Lifetime that is asked for; an API server may grant less.
	Lifetime = 7 * 24 * time.Hour
	// TokenKey holds the token in a Secret, beside the kubeconfig that names it as a file.
	TokenKey = "token"

	// again is the pause after a renewal that failed.
	again = time.Minute
	// shortest pause between two renewals, whatever lifetime is granted.
	shortest = 10 * time.Second
)

// Token is what a service account's token says of itself. Nothing is verified: that is for the API server.
type Token struct {
	// Account is the service account.
	Account types.NamespacedName
	// Issued and Expires bound its life.
	Issued, Expires time.Time
}

// errMalformed says that a text is no token of a service account that expires.
var errMalformed = errors.New("not the token of a service account that expires")

// Parse reads the claims of a token.
func Parse(token string) (Token, error) {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return Token{}, errMalformed
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return Token{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	var claims struct {
		Subject  string `json:"sub"`
		IssuedAt int64  `json:"iat"`
		Expiry   int64  `json:"exp"`
	}
	if err := json.Unmarshal(raw, &claims); err != nil {
		return Token{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	account, ok := strings.CutPrefix(claims.Subject, "system:serviceaccount:")
	namespace, name, found := strings.Cut(account, ":")
	if !ok || !found || claims.Expiry <= claims.IssuedAt {
		return Token{}, errMalformed
	}
	return Token{
		Account: types.NamespacedName{Namespace: namespace, Name: name},
		Issued:  time.Unix(claims.IssuedAt, 0), Expires: time.Unix(claims.Expiry, 0),
	}, nil
}

// RenewAt is when half of its life is over: an outage of as long again costs nothing.
func (t Token) RenewAt() time.Time { return t.Issued.Add(t.Expires.Sub(t.Issued) / 2) }

// Store is where the token is kept.
type Store interface {
	Read(ctx context.Context) (string, error)
	Write(ctx context.Context, token string) error
}

// File is a Store on disk.
type File string

// Read implements Store.
func (f File) Read(context.Context) (string, error) {
	data, err := os.ReadFile(string(f))
	return string(data), err
}

// Write implements Store: a reader finds the old token or the new one, never a part, but for what Windows promises.
func (f File) Write(_ context.Context, token string) error { return replace(string(f), []byte(token)) }

// Secret is a Store in the cluster that the controller runs in. Kubelet brings it to every replica's mount.
type Secret struct {
	Secrets corev1client.SecretInterface
	Name    string
}

// Read implements Store.
func (s Secret) Read(ctx context.Context) (string, error) {
	secret, err := s.Secrets.Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get Secret %s: %w", s.Name, err)
	}
	return string(secret.Data[TokenKey]), nil
}

// Write implements Store.
func (s Secret) Write(ctx context.Context, token string) error {
	patch, err := json.Marshal(map[string]any{"data": map[string][]byte{TokenKey: []byte(token)}})
	if err != nil {
		return err
	}
	if _, err := s.Secrets.Patch(ctx, s.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch Secret %s: %w", s.Name, err)
	}
	return nil
}

// Renewer renews a token. It is a runnable of a manager, and runs where that leads.
type Renewer struct {
	// Accounts are those of the Karmada API.
	Accounts corev1client.ServiceAccountsGetter
	Store    Store
	// Lifetime to ask for; 0 is the default.
	Lifetime time.Duration
	// Expiry is set to the Unix time at which the stored token expires.
	Expiry prometheus.Gauge
	// Now is the clock.
	Now func() time.Time
}

// Start renews until the context ends.
func (r *Renewer) Start(ctx context.Context) error {
	for {
		next, err := r.Renew(ctx)
		if err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "the token on the Karmada API was not renewed")
			next = r.Now().Add(again)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(next.Sub(r.Now()), shortest)):
		}
	}
}

// Renew replaces the stored token if it is time to, and returns when to look again.
func (r *Renewer) Renew(ctx context.Context) (time.Time, error) {
	stored, err := r.Store.Read(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the token: %w", err)
	}
	token, err := Parse(stored)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the token: %w", err)
	}
	r.Expiry.Set(float64(token.Expires.Unix()))
	if r.Now().Before(token.RenewAt()) {
		return token.RenewAt(), nil
	}
	lifetime := r.Lifetime
	if lifetime == 0 {
		lifetime = Lifetime
	}
	answer, err := r.Accounts.ServiceAccounts(token.Account.Namespace).CreateToken(ctx, token.Account.Name,
		Request(lifetime), metav1.CreateOptions{})
	if err != nil {
		return time.Time{}, fmt.Errorf("ask for a token of %s: %w", token.Account, err)
	}
	if err := r.Store.Write(ctx, answer.Status.Token); err != nil {
		return time.Time{}, fmt.Errorf("store the token: %w", err)
	}
	if token, err = Parse(answer.Status.Token); err != nil {
		return time.Time{}, fmt.Errorf("read the new token: %w", err)
	}
	r.Expiry.Set(float64(token.Expires.Unix()))
	log.FromContext(ctx).Info("renewed the token on the Karmada API", "expires", token.Expires.UTC().Format(time.RFC3339))
	return token.RenewAt(), nil
}

// Request for a token with a lifetime.
func Request(lifetime time.Duration) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(lifetime / time.Second))},
	}
}
