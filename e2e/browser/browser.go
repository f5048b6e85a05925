// SPDX-License-Identifier: Apache-2.0

// Package browser opens pages in a Chromium without a screen, for tests.
package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// Program is the browser, of Debian's package of that name.
const Program = "chromium"

const (
	// settle is between two looks at a page.
	settle = 50 * time.Millisecond
	// startTime is how long the browser may take to start, pageTime how long it has in all.
	startTime, pageTime = 2 * time.Minute, 10 * time.Minute
)

// View is how a page is seen.
type View struct {
	Width, Height int64
	Dark          bool
	// Still is whether the reader prefers reduced motion.
	Still bool
}

// Page is an open page.
type Page struct {
	ctx      context.Context
	mu       sync.Mutex
	messages []string
}

// Open opens an address in a browser of its own, which is closed with the test.
func Open(t *testing.T, address string, view View) *Page {
	t.Helper()
	profile, err := os.MkdirTemp("", "sealane-browser-")
	if err != nil {
		t.Fatal(err)
	}
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(Program), chromedp.UserDataDir(profile),
		chromedp.Flag("headless", true), chromedp.Flag("no-sandbox", true), chromedp.Flag("disable-gpu", true),
		chromedp.Flag("disable-quic", true), chromedp.Flag("no-first-run", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("force-color-profile", "srgb"), chromedp.WSURLReadTimeout(startTime)}
	limited, end := context.WithTimeout(context.WithoutCancel(t.Context()), pageTime)
	allocated, stop := chromedp.NewExecAllocator(limited, options...)
	ctx, closePage := chromedp.NewContext(allocated)
	t.Cleanup(func() {
		closePage()
		stop()
		end()
		// The browser's processes write to it for a moment after its end.
		for deadline := time.Now().Add(10 * time.Second); os.RemoveAll(profile) != nil && time.Now().Before(deadline); {
			time.Sleep(settle)
		}
	})
	p := &Page{ctx: ctx}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(view.Width, view.Height)); err != nil {
		t.Fatalf("start %s: %v", Program, err)
	}
	go p.hear(chromedp.Console(ctx))
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}}
	if view.Dark {
		features[0].Value = "dark"
	}
	if view.Still {
		features = append(features, &emulation.MediaFeature{Name: "prefers-reduced-motion", Value: "reduce"})
	}
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		t.Fatal(err)
	}
	p.Go(t, address)
	return p
}

// hear keeps what the page writes to its console, which it does of what fails.
func (p *Page) hear(messages func(func(chromedp.ConsoleMessage, error) bool)) {
	for m, err := range messages {
		if err != nil {
			return // the page is closed
		}
		p.mu.Lock()
		p.messages = append(p.messages, m.String())
		p.mu.Unlock()
	}
}

// Console is what the page has written so far.
func (p *Page) Console() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.messages...)
}

// Go opens another address in the page.
func (p *Page) Go(t *testing.T, address string) {
	t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.Navigate(address)); err != nil {
		t.Fatalf("open %s: %v", address, err)
	}
}

// Resize gives the page another width and height.
func (p *Page) Resize(t *testing.T, width, height int64) {
	t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.EmulateViewport(width, height)); err != nil {
		t.Fatal(err)
	}
}

// Value of an expression in the page.
func Value[T any](t *testing.T, p *Page, expression string) T {
	t.Helper()
	value, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// Within waits until an expression is true.
func (p *Page) Within(t *testing.T, limit time.Duration, expression string) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(settle) {
		is, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		if err == nil && is {
			return
		}
		if time.Now().After(deadline) {
			body := Value[string](t, p, "document.body.innerText")
			t.Fatalf("within %s not true: %s (%v)\nconsole: %q\npage:\n%.3000s", limit, expression, err, p.Console(), body)
		}
	}
}

// Shows waits until an element, by its selector, has a text in it.
func (p *Page) Shows(t *testing.T, limit time.Duration, selector, text string) {
	t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	p.Within(t, limit, fmt.Sprintf("document.querySelector(%s)?.textContent.includes(%s)", strconv.Quote(selector),
		quoted))
}

// Press sends keys to what has the focus.
func (p *Page) Press(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if err := chromedp.Do(p.ctx, chromedp.KeyEvent(key)); err != nil {
			t.Fatalf("press %q: %v", key, err)
		}
	}
}

// Picture is what is seen of the page, as a PNG.
func (p *Page) Picture(t *testing.T) []byte {
	t.Helper()
	shot, err := chromedp.Call(p.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: "png"})
	if err != nil {
		t.Fatal(err)
	}
	return shot.Data
}
