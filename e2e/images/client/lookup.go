// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// dnsCommand asks one server once and prints its answer, truncated or not. A
// negative answer is an answer, not a failure.
func dnsCommand(args []string) error {
	flags := flag.NewFlagSet("dns", flag.ContinueOnError)
	server := flags.String("server", "", "address of the server, by default the pod's")
	timeout := flags.Duration("timeout", 5*time.Second, "time for the answer")
	tcp := flags.Bool("tcp", false, "ask over TCP")
	size := flags.Uint("size", 0, "with EDNS, the size of answer announced")
	if n := len(args); n > 0 && strings.HasPrefix(args[n-1], "@") {
		args = append(args[:n-1:n-1], "-server="+args[n-1][1:])
	}
	rest, err := parse(flags, args, 2)
	if err != nil {
		return err
	}
	kind, ok := dns.StringToType[strings.ToUpper(rest[1])]
	if !ok {
		return fmt.Errorf("dns: unknown record type %q", rest[1])
	}
	address, err := serverAddress(*server)
	if err != nil {
		return err
	}
	query := new(dns.Msg).SetQuestion(dns.Fqdn(rest[0]), kind)
	client := &dns.Client{Timeout: *timeout}
	if *tcp {
		client.Net = "tcp"
	}
	if *size > 0 {
		query.SetEdns0(uint16(min(*size, dns.MaxMsgSize)), false)
	}
	answer, _, err := client.Exchange(query, address)
	if err != nil {
		return fmt.Errorf("dns: ask %s: %w", address, err)
	}
	rcode := dns.RcodeToString[answer.Rcode]
	if answer.Truncated {
		rcode += " truncated"
	}
	fmt.Println(rcode)
	for _, records := range [][]dns.RR{answer.Answer, answer.Ns} {
		for _, r := range records {
			fmt.Println(strings.ReplaceAll(r.String(), "\t", " "))
		}
	}
	return nil
}

// serverAddress adds the port, and takes the first server of resolv.conf(5)
// where none is given.
func serverAddress(server string) (string, error) {
	if server == "" {
		config, err := dns.ClientConfigFromFile("/etc/resolv.conf")
		if err != nil {
			return "", fmt.Errorf("dns: %w", err)
		}
		return net.JoinHostPort(config.Servers[0], config.Port), nil
	}
	if _, _, err := net.SplitHostPort(server); err == nil {
		return server, nil
	}
	return net.JoinHostPort(server, "53"), nil
}
