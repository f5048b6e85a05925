// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const certificateLife = 365 * 24 * time.Hour

// authority is the certificate authority of one control plane. Each has its
// own: a credential of one is worth nothing at another.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// openAuthority reads the authority in dir, or makes one.
func openAuthority(dir, name string) (*authority, error) {
	if a, err := readAuthority(dir); !errors.Is(err, os.ErrNotExist) {
		return a, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(certificateLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create certificate authority: %w", err)
	}
	if err := writePair(dir, "ca", der, key); err != nil {
		return nil, err
	}
	return readAuthority(dir)
}

func readAuthority(dir string) (*authority, error) {
	certPEM, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}
	keyPEM, err := os.ReadFile(filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, fmt.Errorf("read certificate authority in %s: not PEM", dir)
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse certificate authority: %w", err)
	}
	key, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse certificate authority's key: %w", err)
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("certificate authority's key in %s: expected ECDSA, found %T", dir, key)
	}
	return &authority{dir: dir, cert: cert, key: ec}, nil
}

// Issue writes <name>.crt and <name>.key for a client and, with hosts, server,
// unless they exist.
func (a *authority) Issue(name string, subject pkix.Name, dns []string, ips []netip.Addr) error {
	if _, err := os.Stat(filepath.Join(a.dir, name+".key")); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generate key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return fmt.Errorf("generate serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(certificateLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames:     dns,
	}
	for _, ip := range ips {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("create certificate %s: %w", name, err)
	}
	return writePair(a.dir, name, der, key)
}

// IssueServiceAccountKey writes sa.key and sa.pub, which sign the tokens of
// service accounts, unless they exist.
func (a *authority) IssueServiceAccountKey() error {
	if _, err := os.Stat(filepath.Join(a.dir, "sa.pub")); err == nil {
		return nil
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("generate service account key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode service account key: %w", err)
	}
	if err := writeKey(filepath.Join(a.dir, "sa.key"), key); err != nil {
		return err
	}
	return writePEM(filepath.Join(a.dir, "sa.pub"), "PUBLIC KEY", public, 0o644)
}

// Kubeconfig writes <name>.kubeconfig with the certificate of that name.
func (a *authority) Kubeconfig(name, cluster, server string) error {
	config, err := a.config(name, cluster, server)
	if err != nil {
		return err
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	return writeFile(filepath.Join(a.dir, name+".kubeconfig"), data, 0o600)
}

// config has one context, user and cluster, all called cluster.
func (a *authority) config(name, cluster, server string) (*clientcmdapi.Config, error) {
	var files [3][]byte
	for i, file := range []string{"ca.crt", name + ".crt", name + ".key"} {
		data, err := os.ReadFile(filepath.Join(a.dir, file))
		if err != nil {
			return nil, fmt.Errorf("read credential: %w", err)
		}
		files[i] = data
	}
	c := clientcmdapi.NewConfig()
	c.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: files[0]}
	c.AuthInfos[cluster] = &clientcmdapi.AuthInfo{ClientCertificateData: files[1], ClientKeyData: files[2]}
	c.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: cluster}
	c.CurrentContext = cluster
	return c, nil
}

func writePair(dir, name string, cert []byte, key crypto.Signer) error {
	if err := writePEM(filepath.Join(dir, name+".crt"), "CERTIFICATE", cert, 0o644); err != nil {
		return err
	}
	return writeKey(filepath.Join(dir, name+".key"), key)
}

func writeKey(path string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	return writePEM(path, "PRIVATE KEY", der, 0o600)
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	return writeFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}
