// SPDX-License-Identifier: Apache-2.0

// Package ui tests the page of kubectl karmada sealane ui in a browser, with maps that the test makes.
package ui

import (
	"context"
	"flag"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/ui"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/ui/uitest"
	"github.com/sealane-io/sealane/e2e/browser"
)

var pictures = flag.String("pictures", "", "write what is seen of the page to this directory: docs/images has it")

// patience is how long a page may take on a loaded machine, promised how long a change may take to be seen.
const (
	patience = time.Minute
	promised = 5 * time.Second
)

// serve serves a map until the test ends.
func serve(t *testing.T, m ui.Map) (*uitest.Source, string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, l, m)
}

// serveOn serves a map by a listener.
func serveOn(t *testing.T, l net.Listener, m ui.Map) (*uitest.Source, string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	source := &uitest.Source{}
	source.Set(m)
	server, err := ui.NewServer(ctx, l, source, ui.NewToken())
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve() }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return source, server.URL()
}

// quiet fails where the page has written to its console, as it does of what its policy forbids.
func quiet(t *testing.T, p *browser.Page) {
	t.Helper()
	if messages := p.Console(); len(messages) > 0 {
		t.Errorf("the console has %q", messages)
	}
}

// keep writes what is seen of a page, if that was asked for.
func keep(t *testing.T, p *browser.Page, name string) {
	t.Helper()
	picture := p.Picture(t)
	if len(picture) > 150_000 {
		t.Errorf("%s has %d bytes", name, len(picture))
	}
	if *pictures != "" {
		if err := os.WriteFile(filepath.Join(*pictures, name), picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAnEdgeTurnsDown on the map, in the tables and in words, and the details of what was chosen follow.
func TestAnEdgeTurnsDown(t *testing.T) {
	for name, view := range map[string]browser.View{
		"ui-light.png": {Width: 1200, Height: 900}, "ui-dark.png": {Width: 1200, Height: 900, Dark: true},
	} {
		t.Run(name, func(t *testing.T) {
			fleet := uitest.Fleet(3)
			fleet.Taken = time.Now().UTC().Format(time.RFC3339)
			source, address := serve(t, fleet)
			p := browser.Open(t, address, view)
			p.Shows(t, patience, "#summary", "3 clusters, 3 of 3 pairs connected, 1 service, 0 problems")
			p.Shows(t, patience, "#problems-body", "none")
			p.Within(t, patience, `document.querySelectorAll("#graph button.edge.connected").length === 3`)
			source.Set(uitest.Cut(fleet, "c1", "c2"))
			p.Within(t, promised, `document.querySelectorAll("#graph button.edge.down").length === 1`)
			p.Shows(t, patience, "#graph button.edge.down", "✕ down")
			p.Shows(t, patience, "#changes", "c1 and c2 are now down")
			p.Shows(t, patience, "#problems-body", "see diagnose firewall, which says which way is shut")
			p.Shows(t, patience, "#connections-rows", "c1 and c2✕ down")
			browser.Value[any](t, p, `document.querySelector("#graph button.edge.down").click()`)
			p.Shows(t, patience, "#details-title", "c1 and c2")
			p.Shows(t, patience, "#details-body", "no probe is answered")
			keep(t, p, name)
			source.Set(fleet)
			p.Shows(t, patience, "#details-body", "✓ connected")
			p.Shows(t, patience, "#changes", "c1 and c2 are now connected")
			quiet(t, p)
		})
	}
}

// TestAHundredClusters are a matrix, in which arrow keys move and Enter chooses.
func TestAHundredClusters(t *testing.T) {
	fleet := uitest.Fleet(100)
	source, address := serve(t, fleet)
	p := browser.Open(t, address, browser.View{Width: 1200, Height: 900})
	p.Shows(t, patience, "#summary", "100 clusters, 4950 of 4950 pairs connected")
	p.Within(t, patience, `document.querySelectorAll("#matrix td button.connected").length === 9900`)
	p.Within(t, patience, `document.querySelectorAll("#matrix button[tabindex='0']").length === 1`)
	source.Set(uitest.Cut(fleet, "c1", "c11"))
	p.Within(t, patience, `document.querySelectorAll("#matrix td button.down").length === 2`)
	p.Shows(t, patience, "#connections-rows", "c1 and c11✕ down")
	p.Shows(t, patience, "#changes", "c1 and c11 are now down")
	browser.Value[any](t, p, `document.querySelector("#matrix button[tabindex='0']").focus()`)
	p.Press(t, kb.ArrowRight, kb.ArrowRight, kb.ArrowLeft, kb.ArrowRight, kb.ArrowDown)
	label := browser.Value[string](t, p, `document.activeElement.getAttribute("aria-label")`)
	if !strings.HasPrefix(label, "c10 and c11: connected") {
		t.Errorf("arrow keys lead to %q", label)
	}
	p.Press(t, kb.Enter)
	p.Within(t, patience, `document.activeElement.id === "details-title"`)
	p.Shows(t, patience, "#details-title", "c10 and c11")
	keep(t, p, "ui-matrix.png")
	quiet(t, p)
}

// TestPairsOfAMatrixComeAndGo: a cluster is there before it is accepted, and then connected to the others.
func TestPairsOfAMatrixComeAndGo(t *testing.T) {
	whole := uitest.Fleet(25)
	without := whole
	without.Edges = slices.DeleteFunc(slices.Clone(whole.Edges),
		func(e ui.Edge) bool { return e.A == "c25" || e.B == "c25" })
	source, address := serve(t, without)
	p := browser.Open(t, address, browser.View{Width: 1200, Height: 900})
	const pairs = `document.querySelectorAll("#matrix td button.connected").length === `
	p.Within(t, patience, pairs+"552")
	source.Set(whole)
	p.Within(t, patience, pairs+"600")
	source.Set(without)
	p.Within(t, patience, pairs+"552")
	quiet(t, p)
}

// TestTheKeyboardReachesEverything, what is reached has a name, and an update takes the focus from nobody.
func TestTheKeyboardReachesEverything(t *testing.T) {
	fleet := uitest.Cut(uitest.Fleet(3), "c2", "c3")
	source, address := serve(t, fleet)
	p := browser.Open(t, address, browser.View{Width: 1000, Height: 800, Still: true})
	p.Shows(t, patience, "#summary", "3 clusters")
	if n := browser.Value[int](t, p, `document.getAnimations().length`); n != 0 {
		t.Errorf("%d animations for a reader who prefers none", n)
	}
	// Where a part scrolls, Tab stops too.
	stops := browser.Value[int](t, p,
		`document.querySelectorAll("a[href], button, input, [tabindex='0'], .scroll").length`)
	nameless := browser.Value[[]string](t, p, `[...document.querySelectorAll("a[href], button, input")].filter((e) =>
		!(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length)).map((e) => e.outerHTML)`)
	if len(nameless) > 0 {
		t.Errorf("without a name: %q", nameless)
	}
	browser.Value[any](t, p, `{ window.reached = new Set();
		document.addEventListener("focusin", (e) => window.reached.add(e.target)); }`)
	for range stops + 2 {
		p.Press(t, kb.Tab)
	}
	missed := browser.Value[[]string](t, p, `[...document.querySelectorAll("a[href], button, input")].filter((e) =>
		!window.reached.has(e)).map((e) => e.outerHTML)`)
	if len(missed) > 0 {
		t.Errorf("Tab does not reach %q", missed)
	}
	for _, selector := range []string{"#graph button.edge.connected", "#connections-rows tr:last-child button"} {
		browser.Value[any](t, p, `document.querySelector("`+selector+`").focus()`)
		before := browser.Value[string](t, p, `document.activeElement.textContent`)
		source.Set(uitest.Cut(uitest.Fleet(3), "c1", "c2"))
		p.Shows(t, patience, "#changes", "c1 and c2 are now down")
		source.Set(fleet)
		p.Shows(t, patience, "#changes", "c2 and c3 are now down")
		if after := browser.Value[string](t, p, `document.activeElement.textContent`); after != before {
			t.Errorf("the focus was on %q, and is on %.100q", before, after)
		}
	}
	quiet(t, p)
}

// TestNamesAreTextOnly: markup that members put into names and texts is shown, and does nothing.
func TestNamesAreTextOnly(t *testing.T) {
	_, address := serve(t, uitest.Hostile())
	p := browser.Open(t, address, browser.View{Width: 1200, Height: 900})
	p.Shows(t, patience, "#services-rows", uitest.Markup)
	for _, choose := range []string{"#services-rows button", "#clusters-rows button", "#connections-rows button",
		"#graph button.edge", "#graph button.cluster", "#problems-body button"} {
		browser.Value[any](t, p, `document.activeElement.blur()`)
		if n := browser.Value[int](t, p, `(() => { const all = document.querySelectorAll("`+choose+`");
			all.forEach((b) => b.click()); return all.length; })()`); n == 0 {
			t.Errorf("there is no %s to choose", choose)
		}
		p.Within(t, patience, `document.activeElement.id === "details-title"`)
	}
	explain(t, p, "c1/c1-w1", "cart.shop")
	p.Shows(t, patience, "#explanation", uitest.Markup)
	if n := browser.Value[int](t, p, `document.querySelectorAll("img, iframe, object, [onerror]").length`); n != 0 {
		t.Errorf("%d elements that members made", n)
	}
	if n := browser.Value[int](t, p, `document.scripts.length`); n != 1 {
		t.Errorf("%d scripts", n)
	}
	if title := browser.Value[string](t, p, `document.title`); title != "Sealane: the map" {
		t.Errorf("a member's script has run: %q", title)
	}
	if wide := browser.Value[int](t, p, `document.documentElement.scrollWidth`); wide > 1200 {
		t.Errorf("a long name makes the page %d wide", wide)
	}
	quiet(t, p)
}

// explain fills in the form and sends it.
func explain(t *testing.T, p *browser.Page, from, to string) {
	t.Helper()
	browser.Value[any](t, p, `{ document.getElementById("explain-from").value = "`+from+`";
		document.getElementById("explain-to").value = "`+to+`";
		document.getElementById("explain-form").requestSubmit(); }`)
}

// TestAPacketIsFollowed from the form, whose destination a service's details fill in.
func TestAPacketIsFollowed(t *testing.T) {
	_, address := serve(t, uitest.Fleet(3))
	p := browser.Open(t, address, browser.View{Width: 1200, Height: 900})
	p.Shows(t, patience, "#services-rows", "shop/cart")
	browser.Value[any](t, p, `document.querySelector("#services-rows button").click()`)
	p.Shows(t, patience, "#details-body", "served byc1 (2), c2 (1)")
	browser.Value[any](t, p, `document.querySelector("#details-body button").click()`)
	to := browser.Value[string](t, p, `document.getElementById("explain-to").value`)
	if to != "cart.shop.svc.clusterset.local" {
		t.Errorf("the form's destination is %q", to)
	}
	explain(t, p, "c1/c1-gw1", to)
	p.Shows(t, patience, "#outcome", "arrives sometimes")
	p.Shows(t, patience, "#explanation", "a cable that is up")
	explain(t, p, "nowhere", to)
	p.Shows(t, patience, "#explanation", "to do: name one")
	quiet(t, p)
}

// TestNarrowWindows need no scrolling sideways, and whatever is there can be read.
func TestNarrowWindows(t *testing.T) {
	fleet := uitest.Cut(uitest.Fleet(8), "c2", "c6")
	fleet.Services[0].Name = strings.Repeat("a-long-name-", 5)
	_, address := serve(t, fleet)
	p := browser.Open(t, address, browser.View{Width: 360, Height: 740})
	p.Shows(t, patience, "#summary", "8 clusters")
	for _, width := range []int64{360, 320, 700, 1000} {
		p.Resize(t, width, 740)
		if wide := browser.Value[int64](t, p, `document.documentElement.scrollWidth`); wide > width {
			t.Errorf("a page of %d in a window of %d", wide, width)
		}
	}
	p.Resize(t, 360, 740)
	keep(t, p, "ui-narrow.png")
	quiet(t, p)
}

// contrast is the least of all badges, hints and buttons, by WCAG 2: 4.5 is enough for small text.
const contrast = `(() => {
	const channel = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
	const rgb = (text) => text.match(/[\d.]+/g).map(Number);
	const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const c = rgb(getComputedStyle(e).backgroundColor);
			if (c.length < 4 || c[3] > 0) return c;
		}
		return [255, 255, 255];
	};
	return Math.min(...[...document.querySelectorAll(".state, .hint, button, td, dd, dt, th")].map((e) => {
		const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
		return (a + 0.05) / (b + 0.05); }));
})()`

// TestColoursCanBeRead in the light and in the dark, and a state has a mark besides.
func TestColoursCanBeRead(t *testing.T) {
	for name, view := range map[string]browser.View{
		"light": {Width: 1200, Height: 900}, "dark": {Width: 1200, Height: 900, Dark: true},
	} {
		t.Run(name, func(t *testing.T) {
			fleet := uitest.Cut(uitest.Fleet(4), "c1", "c2")
			for i, s := range ui.States() {
				fleet.Edges[i].State = s
			}
			_, address := serve(t, fleet)
			p := browser.Open(t, address, view)
			p.Shows(t, patience, "#summary", "4 clusters")
			if least := browser.Value[float64](t, p, contrast); least < 4.5 {
				t.Errorf("the least contrast is %.2f", least)
			}
			for _, s := range ui.States() {
				p.Shows(t, patience, "#graph button.edge."+string(s), s.Symbol())
			}
			quiet(t, p)
		})
	}
}

// frozen is a listener whose connections send nothing while it is.
type frozen struct {
	net.Listener
	mu sync.Mutex
}

// Accept implements net.Listener.
func (f *frozen) Accept() (net.Conn, error) {
	c, err := f.Listener.Accept()
	return &frozenConn{c, f}, err
}

type frozenConn struct {
	net.Conn
	by *frozen
}

// Write implements net.Conn.
func (c *frozenConn) Write(b []byte) (int, error) {
	c.by.mu.Lock()
	defer c.by.mu.Unlock()
	return c.Conn.Write(b)
}

// TestSilenceIsSaid: a page that looks live is, within the last ten seconds, also of a network at rest. First reading
// takes too long, then the command does not answer.
func TestSilenceIsSaid(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connections := &frozen{Listener: l}
	source, address := serveOn(t, connections, uitest.Fleet(2))
	p := browser.Open(t, address, browser.View{Width: 800, Height: 600})
	p.Shows(t, patience, "#live", "live; last change")
	release := source.Hold()
	p.Shows(t, patience, "#live", "not live: nothing was read for 1")
	release()
	p.Within(t, patience, `document.querySelector("#live-text").textContent.startsWith("live; last change")`)
	connections.mu.Lock()
	p.Shows(t, patience, "#live", "not live: the command has not answered for 1")
	connections.mu.Unlock()
	p.Within(t, patience, `document.querySelector("#live-text").textContent.startsWith("live; last change")`)
}

// TestTheEndIsSaid: a page whose command has ended does not look as if it were live.
func TestTheEndIsSaid(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	source := &uitest.Source{}
	source.Set(uitest.Fleet(2))
	server, err := ui.NewServer(ctx, l, source, ui.NewToken())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve() }()
	p := browser.Open(t, server.URL(), browser.View{Width: 800, Height: 600})
	p.Shows(t, patience, "#live", "live; last change")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	p.Shows(t, patience, "#live", "not live: the command has ended")
	quiet(t, p)
}
