
// Texts come from clusters that nobody trusts. They reach the page as textContent and as attributes that make nothing of
// them, never as markup.

const symbols = {
  connected: "✓", impaired: "!", connecting: "…", down: "✕", unknown: "?", ok: "✓", warn: "!", fail: "✕",
};

const byId = (id) => document.getElementById(id);

// make an element with attributes, and with texts and elements in it.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") element.addEventListener("click", value);
    else if (value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== ""));
  return element;
}

// badge shows a state by a mark, a word and a colour.
function badge(state, word = state) {
  const symbol = Object.hasOwn(symbols, state) ? symbols[state] + " " : "";
  const known = symbol || ["yes", "no", "sometimes", "exported", "pending", "failed"].includes(state);
  return make("span", { class: "state " + (known ? state : "unknown") }, symbol + word);
}

// write sets a text only where it differs, so that nothing is read aloud again.
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// facts is a list of terms with what is known of each; terms without are left out.
function facts(pairs) {
  const list = make("dl");
  for (const [term, value] of pairs) {
    if (value === undefined || value === "" || value === null) continue;
    list.append(make("dt", {}, term), make("dd", {}, ...(Array.isArray(value) ? value : [value])));
  }
  return list;
}

// link is a button that looks like a link, as it shows something on this page.
const link = (text, onclick, label) =>
  make("button", { type: "button", class: "plain", onclick, "aria-label": label }, text);

// rows brings a table's body up to date, row by row: one that says the same stays, and keeps the focus.
function rows(body, items, keyOf, cellsOf) {
  const old = new Map([...body.children].map((row) => [row.key, row]));
  const fresh = items.map((item) => {
    const key = keyOf(item), text = JSON.stringify(item), before = old.get(key);
    if (before && before.text === text) return before;
    const row = make("tr", {}, ...cellsOf(item).map((cell, i) =>
      make(i === 0 ? "th" : "td", i === 0 ? { scope: "row" } : {}, ...[].concat(cell))));
    row.key = key;
    row.text = text;
    row.replaces = before;
    return row;
  });
  arrange(body, fresh);
}

// arrange makes children the given elements, moving as few as can be, and gives the focus of an element to what takes its
// place.
function arrange(parent, elements) {
  const focused = document.activeElement;
  const lost = elements.find((e) => e.replaces && e.replaces.contains(focused));
  const at = lost ? [...lost.replaces.querySelectorAll("button")].indexOf(focused) : -1;
  const keep = new Set(elements);
  for (const child of [...parent.children]) if (!keep.has(child)) child.remove();
  let next = parent.firstElementChild;
  for (const element of elements) {
    if (element === next) next = next.nextElementSibling;
    else parent.insertBefore(element, next);
  }
  if (lost && at >= 0) lost.querySelectorAll("button")[at]?.focus();
  for (const element of elements) delete element.replaces;
}

const milliseconds = (us) => (us === undefined ? "" : (us / 1000).toFixed(us < 10000 ? 2 : 1) + " ms");
const percent = (n) => (n === undefined ? "" : n + " %");
const counted = (n, what) => n + " " + what + (n === 1 ? "" : "s");
const together = (list) => (list || []).join(", ");
