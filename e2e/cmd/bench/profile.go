// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// samplesPerSecond of each processor.
	samplesPerSecond = 499
	// steady is how long a flow has gone on before it is looked at.
	steady = time.Second
	// topFunctions are named one by one.
	topFunctions = 12
)

// profile is where the processors' time goes while one flow takes a path.
type profile struct {
	Name string
	// rounds hold seconds per gigabyte by function.
	rounds  []map[function]float64
	samples int
}

// function of the kernel, in whatever program is interrupted, or of a program itself.
type function struct {
	Program, Symbol string
	Kernel          bool
}

// kind is what a processor does, told by names.
type kind struct {
	what string
	re   *regexp.Regexp
}

// idle is of no interest.
const idle = "idle"

// kinds of what the kernel does, of which a function is the first that fits.
var kinds = []kind{
	{idle, regexp.MustCompile(`safe_halt|default_idle|cpuidle|mwait|^poll_idle`)},
	{"encryption", regexp.MustCompile(`(?i)chacha|poly1305|blake2|gcm`)},
	{"copies", regexp.MustCompile(`_copy_|copy_(to|from)_user|rep_movs|memmove|memcpy|skb_copy|copy_page|clear_page`)},
	{"checksums", regexp.MustCompile(`(?i)csum|checksum`)},
	{"rules and connection tracking", regexp.MustCompile(`conntrack|` + begins("nft", "nf", "ct", "ipt", "ip6t", "xt"))},
	{"bridges, veth, VXLAN, TUN", regexp.MustCompile(begins("br", "veth", "vxlan", "tun", "fdb", "gro", "udp_tunnel",
		"iptunnel", "dev_gro", "napi", "skb_gro", "eth", "dev"))},
	{"IP and UDP", regexp.MustCompile(begins("ip", "ip6", "ipv6", "fib", "fib6", "udp", "udp6", "inet", "neigh", "dst",
		"rt", "rt6", "icmp"))},
	{"TCP, sockets, packets' memory", regexp.MustCompile(begins("tcp", "sock", "skb", "sk", "inet_csk", "release_sock",
		"lock_sock", "kmem", "kmalloc", "page", "alloc", "free", "slab", "get_page", "put_page", "refill") + `|^_*kfree`)},
	{waits, regexp.MustCompile(`sched|futex|lock|finish_task|switch|syscall|entry_|wake|softirq|hrtimer|ep_|epoll|` +
		`vfs_|fget|select|update_`)},
}

// begins is the expression of names that begin so.
func begins(names ...string) string { return `^_*(` + strings.Join(names, "|") + `)_` }

// waits are of the kernel, too, others is what fits none, and control what Kubernetes, Karmada and this machine do
// besides.
const (
	waits   = "scheduler, locks, system calls"
	others  = "others of the kernel"
	control = "everything else on the machine"
)

// programs on the way, by the functions of their own. Those of containers have no symbols.
var programs = []kind{
	{"WireGuard in its process", regexp.MustCompile(`^(sealane-agent|bench)`)},
	{"client and server", regexp.MustCompile(`^(client|whereami)$`)},
}

// whats are the rows of a profile.
func whats() []string {
	var out []string
	for _, k := range slices.Concat(programs, kinds[1:]) { // not idle
		out = append(out, k.what)
	}
	return append(out, others, control)
}

// row of a profile to which the function counts. Packets are handled in whatever program is interrupted.
func (f function) row() string {
	of := func(kinds []kind, name, rest string) string {
		for _, k := range kinds {
			if k.re.MatchString(name) {
				return k.what
			}
		}
		return rest
	}
	program := of(programs, f.Program, control)
	if !f.Kernel {
		return program
	}
	what := of(kinds, f.Symbol, others)
	// swapper is a processor that has nothing else to do when a packet comes.
	if program == control && f.Program != "swapper" && (what == others || what == waits || what == "copies") {
		return control
	}
	return what
}

// Per is the seconds per gigabyte of a row.
func (p profile) Per(what string) float64 {
	return p.median(func(f function) bool { return f.row() == what })
}

// All is that of all rows.
func (p profile) All() float64 {
	return p.median(func(function) bool { return true })
}

func (p profile) median(fits func(function) bool) float64 {
	var sums []float64
	for _, round := range p.rounds {
		sum := 0.0
		for f, per := range round {
			if fits(f) {
				sum += per
			}
		}
		sums = append(sums, sum)
	}
	return median(sums)
}

// hot is a function in which much time goes.
type hot struct {
	Symbol string
	Per    float64
}

// Top are the functions of the kernel in which most time goes, whichever program they ran in.
func (p profile) Top() []hot {
	names := map[string]bool{}
	for _, round := range p.rounds {
		for f := range round {
			if f.Kernel && f.row() != control {
				names[f.Symbol] = true
			}
		}
	}
	var out []hot
	for name := range names {
		out = append(out, hot{name, p.median(func(f function) bool { return f.Kernel && f.Symbol == name })})
	}
	slices.SortFunc(out, func(a, b hot) int {
		return cmp.Or(cmp.Compare(b.Per, a.Per), cmp.Compare(a.Symbol, b.Symbol))
	})
	return out[:min(len(out), topFunctions)]
}

// profiled is how many samples profiles have.
func profiled(all []profile) (sum int) {
	for _, p := range all {
		sum += p.samples
	}
	return sum
}

// profiles looks at one flow by each path, in turns.
func profiles(ctx context.Context, paths []path, rounds int, duration time.Duration) ([]profile, error) {
	dir, err := os.MkdirTemp("", "sealane-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := make([]profile, len(paths))
	for range rounds {
		for i := range paths {
			out[i].Name = paths[i].Name
			if err := out[i].look(ctx, &paths[i], filepath.Join(dir, "perf.data"), duration); err != nil {
				return nil, fmt.Errorf("profile of %s: %w", paths[i].Name, err)
			}
		}
	}
	return out, nil
}

// look at one flow.
func (p *profile) look(ctx context.Context, on *path, file string, duration time.Duration) error {
	type result struct {
		rate float64
		err  error
	}
	flow := make(chan result, 1)
	go func() {
		rate, err := on.number(ctx, "bulk", "-duration="+(duration+2*steady).String(), "-streams=1", on.target)
		flow <- result{rate, err}
	}()
	if err := wait(ctx, steady); err != nil {
		return err
	}
	_, err := command(ctx, "perf", "record", "-q", "-a", "-e", "cpu-clock", "-F", strconv.Itoa(samplesPerSecond), "-o",
		file, "--", "sleep", strconv.FormatFloat(duration.Seconds(), 'f', -1, 64))
	if err != nil {
		return fmt.Errorf("%w (perf is Debian's linux-perf)", err)
	}
	passed := <-flow
	if passed.err != nil {
		return passed.err
	}
	text, err := command(ctx, "perf", "report", "-i", file, "--stdio", "--no-children", "--percent-limit", "0", "-F",
		"sample,comm,sym", "-t", "\t")
	if err != nil {
		return err
	}
	counts, err := parseProfile(text)
	if err != nil {
		return err
	}
	gigabytes := passed.rate / 8e9 * duration.Seconds()
	round := map[function]float64{}
	for f, count := range counts {
		round[f] = float64(count) / samplesPerSecond / gigabytes
		p.samples += count
	}
	p.rounds = append(p.rounds, round)
	fmt.Printf("%s: one flow %.0f Mbit/s at %.2f s/GB\n", p.Name, passed.rate/1e6, sum(maps.Values(round)))
	return nil
}

func sum(values func(func(float64) bool)) (out float64) {
	for v := range values {
		out += v
	}
	return out
}

// parseProfile reads the samples of each function from perf's report, without those of idle processors.
func parseProfile(text string) (map[function]int, error) {
	out := map[function]int{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) < 3 {
			return nil, fmt.Errorf("report of perf: expected samples, a program and a function, found %q", line)
		}
		count, err := strconv.Atoi(strings.TrimSpace(fields[0]))
		if err != nil {
			return nil, fmt.Errorf("report of perf: expected a number of samples, found %q", line)
		}
		where, symbol, _ := strings.Cut(strings.TrimSpace(fields[2]), "] ") // [k] or [.], and what is meant
		f := function{Program: strings.TrimSpace(fields[1]), Symbol: strings.TrimSpace(symbol), Kernel: where == "[k"}
		if f.row() != idle {
			out[f] += count
		}
	}
	return out, nil
}
