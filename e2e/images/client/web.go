// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// getCommand makes each request on a connection of its own, as one client after
// the other would. It fails if the last request did.
func getCommand(args []string) error {
	flags := flag.NewFlagSet("http", flag.ContinueOnError)
	count := flags.Int("count", 1, "number of requests")
	interval := flags.Duration("interval", time.Second, "time between requests")
	timeout := flags.Duration("timeout", 5*time.Second, "time for one request")
	quiet := flags.Bool("quiet", false, "print lengths, not bodies")
	rest, err := parse(flags, args, 1)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: *timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(max(*interval, time.Millisecond))
	defer tick.Stop()
	for n := range *count {
		if n > 0 {
			<-tick.C
		}
		if err = get(client, rest[0], *quiet); err != nil && n < *count-1 {
			fmt.Println("error:", err)
		}
	}
	return err
}

func get(client *http.Client, url string, quiet bool) error {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	out := io.Writer(os.Stdout)
	if quiet {
		out = io.Discard
	}
	n, err := io.Copy(out, response.Body)
	if err != nil {
		return fmt.Errorf("read body after %d bytes: %w", n, err)
	}
	if quiet {
		fmt.Println(n)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}

// bulkCommand downloads from whereami's /body over some connections.
func bulkCommand(args []string) error {
	flags := flag.NewFlagSet("bulk", flag.ContinueOnError)
	duration := flags.Duration("duration", 10*time.Second, "how long")
	streams := flags.Int("streams", 1, "connections side by side")
	rest, err := parse(flags, args, 1)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), *duration)
	defer cancel()
	var received atomic.Int64
	failures := make([]error, *streams)
	var wg sync.WaitGroup
	begin := time.Now()
	for s := range *streams {
		wg.Go(func() { failures[s] = download(ctx, "http://"+rest[0]+"/body?bytes=1073741824", &received) })
	}
	wg.Wait()
	fmt.Printf("%.0f\n", float64(received.Load())*8/time.Since(begin).Seconds())
	return errors.Join(failures...)
}

// download repeats a GET until the context ends, which is no error.
func download(ctx context.Context, url string, received *atomic.Int64) error {
	client := &http.Client{Transport: &http.Transport{}}
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("request: %w", err)
		}
		response, err := client.Do(request)
		if err == nil {
			_, err = io.Copy(counter{received}, response.Body)
			_ = response.Body.Close()
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("download: %w", err)
		}
	}
	return nil
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}
