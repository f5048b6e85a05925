// SPDX-License-Identifier: Apache-2.0

// Package metricstest checks who can read the metrics of a process.
package metricstest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Check scrapes a process as Prometheus would. A ServiceAccount in the namespace "default" of the cluster that admin
// administers has the metrics, with the line among them, once it is bound to a ClusterRole, which has to exist.
// Nobody else has them: no token, an invalid one, or one of an account without the role.
func Check(t *testing.T, admin *rest.Config, address, reader, line string) {
	t.Helper()
	stranger, scraper := account(t, admin, "stranger", ""), account(t, admin, "scraper", reader)
	for _, c := range []struct {
		who, token string
		status     int
	}{
		{"without a token", "", http.StatusUnauthorized},
		{"with an invalid token", "invalid", http.StatusUnauthorized},
		{"with the token of an account without the role", stranger, http.StatusForbidden},
		{"with the token of an account with the role", scraper, http.StatusOK},
	} {
		status, body := Scrape(t, address, c.token)
		if status != c.status {
			t.Errorf("%s: status %d, want %d: %s", c.who, status, c.status, body)
		}
		if has := strings.Contains(body, line); has != (c.status == http.StatusOK) {
			t.Errorf("%s: %q among the metrics: %v:\n%s", c.who, line, has, body)
		}
	}
	plain(t, address)
}

// Scrape reads /metrics of an address over TLS, with a bearer token unless that is "", and returns the status and the
// body. It waits until the address can be connected to.
func Scrape(t *testing.T, address, token string) (int, string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		status, body, err := do(transport, request)
		if err == nil {
			return status, body
		}
		var failed *net.OpError
		if !errors.As(err, &failed) || time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// plain fails the test if metrics are served without TLS.
func plain(t *testing.T, address string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	if status, body, err := do(&http.Transport{DisableKeepAlives: true}, request); err == nil &&
		status != http.StatusBadRequest {
		t.Errorf("without TLS: status %d: %s", status, body)
	}
}

func do(transport http.RoundTripper, request *http.Request) (int, string, error) {
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// account returns a token of a new ServiceAccount that is bound to a ClusterRole, unless that is "".
func account(t *testing.T, admin *rest.Config, name, role string) string {
	t.Helper()
	cluster, err := kubernetes.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	token, err := create(t.Context(), cluster, name, role)
	if err != nil {
		t.Fatalf("make the ServiceAccount %s: %v", name, err)
	}
	return token
}

func create(ctx context.Context, cluster kubernetes.Interface, name, role string) (string, error) {
	const namespace = metav1.NamespaceDefault
	accounts, meta := cluster.CoreV1().ServiceAccounts(namespace), metav1.ObjectMeta{Name: name}
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	if role != "" {
		if _, err := cluster.RbacV1().ClusterRoles().Get(ctx, role, metav1.GetOptions{}); err != nil {
			return "", fmt.Errorf("find its role: %w", err)
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
		}
		if _, err := cluster.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			return "", err
		}
	}
	answer, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return answer.Status.Token, nil
}
