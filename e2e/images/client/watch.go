// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/miekg/dns"
)

// attempt bounds one look-up and one request of watch: a lost packet costs no more than this.
const attempt = 200 * time.Millisecond

// watchCommand sees a name appear. It asks the pod's DNS server until it answers, and then the address until
// it serves, and prints when each happened. That of the first negative answer tells that it is watching.
func watchCommand(args []string) error {
	flags := flag.NewFlagSet("watch", flag.ContinueOnError)
	interval := flags.Duration("interval", 5*time.Millisecond, "time between attempts")
	timeout := flags.Duration("timeout", 30*time.Second, "time for everything")
	rest, err := parse(flags, args, 1)
	if err != nil {
		return err
	}
	target, err := url.Parse(rest[0])
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	server, err := serverAddress("")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), *timeout, fmt.Errorf("not within %s", *timeout))
	defer cancel()
	var address net.IP
	steps := []struct {
		event string
		try   func() error
	}{
		{"watching", func() error { return absent(ctx, server, target.Hostname()) }},
		{"dns", func() error { address, err = lookUp(ctx, server, target.Hostname()); return err }},
		{"http", func() error { return serves(ctx, target, address) }},
	}
	for _, s := range steps {
		at, err := first(ctx, *interval, s.try)
		if err != nil {
			return fmt.Errorf("watch %s: %s: %w", target, s.event, err)
		}
		fmt.Println(s.event, at.UnixNano())
	}
	return nil
}

// first returns when try succeeded for the first time.
func first(ctx context.Context, interval time.Duration, try func() error) (time.Time, error) {
	tick := time.NewTicker(max(interval, time.Millisecond))
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return time.Now(), nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// lookUp asks for a name's first IPv4 address. No address is errNoAddress; no answer is another error.
func lookUp(ctx context.Context, server, name string) (net.IP, error) {
	client := &dns.Client{Timeout: attempt}
	query := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA)
	answer, _, err := client.ExchangeContext(ctx, query, server)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", server, err)
	}
	for _, record := range answer.Answer {
		if a, ok := record.(*dns.A); ok {
			return a.A, nil
		}
	}
	return nil, errNoAddress
}

var errNoAddress = errors.New("no address")

func absent(ctx context.Context, server, name string) error {
	address, err := lookUp(ctx, server, name)
	switch {
	case errors.Is(err, errNoAddress):
		return nil
	case err != nil:
		return err
	default:
		return fmt.Errorf("expected no answer yet, found %s", address)
	}
}

// serves makes one request, on a connection of its own, to an address.
func serves(ctx context.Context, target *url.URL, address net.IP) error {
	port := target.Port()
	if port == "" {
		port = "80"
	}
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(address.String(), port))
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("answer: %s", response.Status)
	}
	return nil
}
