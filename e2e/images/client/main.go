// SPDX-License-Identifier: Apache-2.0

// Command client asks questions from inside a pod.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage:
  client http [-count 1] [-interval 1s] [-timeout 5s] [-quiet] URL   GET; prints bodies, or with -quiet their lengths
  client dns [-server ADDR] [-tcp] [-size N] NAME TYPE [@ADDR]       look up; prints response code and records
  client reach [-timeout 3s] PROTOCOL,BYTES,ADDRESS...               udp, icmp (echoes), tcp (a body); prints N of N
  client udp [-count 1] [-timeout 5s] HOST:PORT BYTES                send a datagram to an echo, compare the answer
  client tcp [-duration 60s | -until-eof] [-interval 20ms] HOST:PORT hold one connection; prints the longest gap
  client bulk [-duration 10s] [-streams 1] HOST:PORT                 download as fast as possible; prints bit/s
  client rtt [-count 500] HOST:PORT                                  time datagrams to an echo; prints the median in us
  client flow [-duration 10s | -until-eof] [-interval 5ms] HOST:PORT datagrams to an echo; prints lost, longest gap
  client connects [-duration 10s | -until-eof] [-interval 10ms] HOST:PORT
                                                                     open connections; prints those failed, the slowest
  client watch [-interval 5ms] [-timeout 30s] URL                    prints when DNS, then HTTP answered
  client sleep                                                       wait to be used with exec`

func main() {
	if err := dispatch(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func dispatch(args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	commands := map[string]func([]string) error{
		"http": getCommand, "dns": dnsCommand, "udp": udpCommand, "reach": reachCommand,
		"tcp": tcpCommand, "bulk": bulkCommand, "rtt": rttCommand, "flow": flowCommand, "connects": connectsCommand,
		"watch": watchCommand, "sleep": sleepCommand,
	}
	command, ok := commands[args[0]]
	if !ok {
		return fmt.Errorf("unknown command %q\n%s", args[0], usage)
	}
	return command(args[1:])
}

// anyNumber of positional arguments but none.
const anyNumber = -1

// parse reads a command's flags, which may stand anywhere, and returns its
// positional arguments.
func parse(flags *flag.FlagSet, args []string, positional int) ([]string, error) {
	flags.Usage = func() {}
	var rest []string
	for len(args) > 0 {
		if err := flags.Parse(args); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", flags.Name(), err, usage)
		}
		args = flags.Args()
		if len(args) > 0 {
			rest, args = append(rest, args[0]), args[1:]
		}
	}
	if len(rest) != positional && (positional != anyNumber || len(rest) == 0) {
		return nil, fmt.Errorf("%s: expected %d arguments, found %q\n%s", flags.Name(), positional, rest, usage)
	}
	return rest, nil
}

func sleepCommand([]string) error {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
	return nil
}
