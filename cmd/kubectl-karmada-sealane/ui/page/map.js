
// The map: a graph of few clusters, a matrix of many.

const maxGraph = 20, maxLabelled = 6;

const edgeKey = (e) => e.a + " " + e.b;
const edgeName = (e) => e.a + " and " + e.b;
const isUp = (e) => e.state === "connected" || e.state === "impaired";

// edgeLabel is what a pair says in few characters.
function edgeLabel(e) {
  if (!isUp(e)) return symbols[e.state] + " " + e.state;
  const loss = e.loss ? ", " + e.loss + " % lost" : "";
  return symbols[e.state] + (e.rtt === undefined ? "" : " " + (e.rtt / 1000).toFixed(1) + " ms") + loss;
}

// edgeText is the same for those who do not see where it stands.
const edgeText = (e) => edgeName(e) + ": " + e.state +
  (e.rtt === undefined ? "" : ", round trip " + milliseconds(e.rtt)) + (e.loss ? ", " + e.loss + " % lost" : "");

function drawLegend() {
  byId("legend").append(...["connected", "impaired", "connecting", "down", "unknown"].map((s) =>
    make("li", {}, badge(s))));
}

function drawMap(map, choose, chosen) {
  const graph = map.clusters.length <= maxGraph;
  byId("graph").hidden = !graph;
  byId("matrix").hidden = graph;
  (graph ? drawGraph : drawMatrix)(map, choose, chosen);
  let hint = "";
  if (map.clusters.length === 0) hint = "There is no member yet.";
  else if (!graph) hint = "More than " + maxGraph + " clusters are drawn as a matrix. Arrow keys move between its cells.";
  else if (map.clusters.length > maxLabelled) {
    hint = "Only pairs that are not as they should be have a mark; the table below has all.";
  }
  if (map.left.clusters) hint += " " + counted(map.left.clusters, "more cluster") + " not shown: narrow with --clusters.";
  write(byId("map-hint"), hint);
}

// place puts a button where the map has it, in percent of the sheet of 1000 by 640.
function place(button, x, y) {
  button.style.left = x / 10 + "%";
  button.style.top = y / 6.4 + "%";
}

// part keeps an element of the graph by its key, or makes it.
function part(parts, used, key, create) {
  used.add(key);
  if (!parts.has(key)) parts.set(key, create());
  return parts.get(key);
}

const parts = new Map();

function drawGraph(map, choose, chosen) {
  const graph = byId("graph"), used = new Set(), at = new Map(map.clusters.map((c) => [c.name, c]));
  const many = map.clusters.length > maxLabelled;
  graph.classList.toggle("many", many);
  const svg = part(parts, used, "svg", () => {
    const s = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    s.setAttribute("viewBox", "0 0 1000 640");
    s.setAttribute("preserveAspectRatio", "none");
    s.setAttribute("aria-hidden", "true");
    graph.append(s);
    return s;
  });
  for (const e of map.edges) {
    const a = at.get(e.a), b = at.get(e.b);
    const line = part(parts, used, "line " + edgeKey(e), () => {
      const l = document.createElementNS("http://www.w3.org/2000/svg", "line");
      l.setAttribute("vector-effect", "non-scaling-stroke");
      l.addEventListener("click", () => choose({ kind: "edge", key: edgeKey(e) }));
      svg.append(l);
      return l;
    });
    for (const [name, value] of [["x1", a.x], ["y1", a.y], ["x2", b.x], ["y2", b.y]]) line.setAttribute(name, value);
    if (e.state !== "connected") svg.append(line); // above those that are as they should be
    line.setAttribute("class", e.state + (chosen?.key === edgeKey(e) ? " chosen" : ""));
  }
  for (const c of map.clusters) drawCluster(graph, used, c, choose, chosen);
  for (const e of map.edges) {
    if (many && e.state === "connected") continue;
    const a = at.get(e.a), b = at.get(e.b);
    const button = part(parts, used, "edge " + edgeKey(e), () => {
      const made = make("button", { type: "button", onclick: () => choose({ kind: "edge", key: edgeKey(e) }, made) });
      graph.append(made);
      return made;
    });
    button.className = "edge " + e.state;
    write(button, many ? symbols[e.state] : edgeLabel(e));
    button.setAttribute("aria-label", edgeText(e));
    button.setAttribute("aria-pressed", String(chosen?.key === edgeKey(e)));
    button.title = edgeText(e);
    // In the middle, lines of opposite clusters meet.
    if (many) place(button, (2 * a.x + b.x) / 3, (2 * a.y + b.y) / 3);
    else place(button, (a.x + b.x) / 2, (a.y + b.y) / 2);
  }
  for (const [key, element] of parts) {
    if (used.has(key)) continue;
    if (element.contains(document.activeElement)) byId("details-title").focus();
    element.remove();
    parts.delete(key);
  }
}

function drawCluster(graph, used, c, choose, chosen) {
  const button = part(parts, used, "cluster " + c.name, () => {
    const made = make("button", { type: "button", onclick: () => choose({ kind: "cluster", key: c.name }, made) },
      make("b"), make("small"));
    graph.append(made);
    return made;
  });
  button.className = "cluster " + c.verdict;
  write(button.children[0], symbols[c.verdict] + " " + c.name);
  const gateways = c.gateways || [], active = gateways.filter((g) => g.ha === "Active").length;
  const summary = c.unasked ? "could not be asked" : counted(gateways.length, "gateway") + ", " + active + " active";
  write(button.children[1], summary);
  button.setAttribute("aria-label", "cluster " + c.name + ": " + c.verdict + ", " + summary);
  button.setAttribute("aria-pressed", String(chosen?.kind === "cluster" && chosen.key === c.name));
  button.title = c.name;
  place(button, c.x, c.y);
}

const grid = { shape: "", cells: new Map(), row: 0, column: 1 };

// drawMatrix makes the table anew where clusters or pairs come or go; otherwise only cells that differ are touched.
function drawMatrix(map, choose, chosen) {
  const names = map.clusters.map((c) => c.name);
  const shape = JSON.stringify([names, map.edges.map(edgeKey)]);
  if (grid.shape !== shape) buildMatrix(names, map.edges, choose);
  grid.shape = shape;
  for (const e of map.edges) {
    for (const button of grid.cells.get(edgeKey(e)) || []) {
      const text = edgeText(e), pressed = String(chosen?.key === edgeKey(e));
      if (button.title === text && button.getAttribute("aria-pressed") === pressed) continue;
      button.className = e.state;
      button.title = text;
      button.setAttribute("aria-label", text);
      button.setAttribute("aria-pressed", pressed);
      write(button, symbols[e.state]);
    }
  }
}

function buildMatrix(names, edges, choose) {
  grid.cells = new Map();
  const known = new Set(edges.map(edgeKey));
  const table = make("table", { role: "grid", "aria-label": "State of each pair of clusters" },
    make("thead", {}, make("tr", {}, make("td"), ...names.map((n) => make("th", { scope: "col", title: n }, n)))));
  const body = make("tbody");
  for (const [i, row] of names.entries()) {
    const line = make("tr", {}, make("th", { scope: "row", title: row }, row));
    for (const [j, column] of names.entries()) {
      const key = row < column ? row + " " + column : column + " " + row, cell = make("td");
      if (known.has(key)) {
        const button = make("button", { type: "button", tabindex: "-1" });
        button.addEventListener("click", () => { moveTo(i, j); choose({ kind: "edge", key }, button); });
        grid.cells.set(key, [...(grid.cells.get(key) || []), button]);
        cell.append(button);
      }
      line.append(cell);
    }
    body.append(line);
  }
  table.append(body);
  table.addEventListener("keydown", moveByKey);
  byId("matrix").replaceChildren(table);
  grid.body = body;
  grid.size = names.length;
  const first = body.querySelector("button");
  if (first) first.tabIndex = 0;
  [grid.row, grid.column] = [0, 1];
}

const cellAt = (row, column) => grid.body.rows[row]?.cells[column + 1]?.querySelector("button");

// moveTo makes one cell the only one that Tab reaches.
function moveTo(row, column) {
  const before = cellAt(grid.row, grid.column), cell = cellAt(row, column);
  if (!cell) return;
  if (before) before.tabIndex = -1;
  cell.tabIndex = 0;
  [grid.row, grid.column] = [row, column];
  cell.focus();
}

function moveByKey(event) {
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!steps) return;
  event.preventDefault();
  let [row, column] = [grid.row + steps[0], grid.column + steps[1]];
  // The diagonal, and pairs that nothing is between, have no button.
  while (row >= 0 && row < grid.size && column >= 0 && column < grid.size) {
    if (cellAt(row, column)) { moveTo(row, column); return; }
    row += steps[0];
    column += steps[1];
  }
}
