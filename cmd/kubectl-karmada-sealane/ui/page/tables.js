
// The same as the map, and what it has no room for, as tables.

const maxRows = 400;

function drawProblems(map, choose) {
  const body = byId("problems-body");
  const text = JSON.stringify([map.problems, map.left.problems]);
  if (body.text === text) return;
  body.text = text;
  const all = map.problems.length + map.left.problems;
  write(byId("problems-title"), all ? "Problems (" + all + ")" : "Problems");
  if (map.problems.length === 0) {
    body.replaceChildren(make("p", {}, badge("ok", "none: every check of diagnose is ok")));
    return;
  }
  const focused = body.contains(document.activeElement);
  body.replaceChildren(...map.problems.map((p) => make("article",
    { class: "problem" + (p.verdict === "fail" ? " severe" : "") },
    make("h3", {}, badge(p.verdict), " " + p.check + " of ",
      p.cluster ? link(p.cluster, () => choose({ kind: "cluster", key: p.cluster })) : "the Karmada API"),
    facts([["expected", p.expected], ["found", p.found], ["to do", p.remedy]]))));
  const left = counted(map.left.problems, "more problem") + " not shown.";
  if (map.left.problems) body.append(make("p", { class: "hint" }, left));
  if (focused) byId("problems").focus();
}

function drawConnections(map, choose) {
  let shown = map.edges;
  let hint = "";
  if (shown.length > maxRows) {
    const all = shown.length;
    shown = shown.filter((e) => e.state !== "connected").slice(0, maxRows);
    hint = "Of " + all + " pairs, " + shown.length + " that are not as they should be are here; the matrix has all.";
  }
  rows(byId("connections-rows"), shown, edgeKey, (e) => [
    link(edgeName(e), () => choose({ kind: "edge", key: edgeKey(e) })), badge(e.state), milliseconds(e.rtt),
    percent(e.loss), counted((e.tunnels || []).length, "report"),
  ]);
  write(byId("connections-hint"), hint);
}

const serviceKey = (s) => s.namespace + "/" + s.name;

// serviceState is the worst of what a service has to say.
function serviceState(s) {
  const exports = s.exports || [];
  if (exports.some((e) => e.state === "failed")) return badge("fail", "an export failed");
  if ((s.problems || []).length || exports.some((e) => e.message)) return badge("warn", "see details");
  if (exports.some((e) => e.state === "pending")) return badge("pending");
  return badge("ok");
}

function serves(i) {
  const from = (i.served || []).filter((s) => s.endpoints > 0).map((s) => s.cluster + " (" + s.endpoints + ")");
  return from.length ? from.join(", ") : "nobody";
}

function drawServices(map, choose) {
  const want = byId("services-filter").value.trim().toLowerCase();
  const matches = (s) => !want || [serviceKey(s), ...(s.exports || []).map((e) => e.cluster),
    ...(s.imports || []).map((i) => i.cluster)].some((text) => text.toLowerCase().includes(want));
  const found = map.services.filter(matches), shown = found.slice(0, maxRows);
  rows(byId("services-rows"), shown, serviceKey, (s) => [
    link(serviceKey(s), () => choose({ kind: "service", key: serviceKey(s) })),
    together(s.ports),
    (s.exports || []).map((e) => e.cluster + (e.backends ? " (" + e.backends + ")" : "")).join(", ") || "nobody",
    together((s.imports || []).map((i) => i.cluster)) || "no cluster",
    serviceState(s),
  ]);
  const left = found.length - shown.length + map.left.services;
  write(byId("services-hint"), map.services.length === 0 ? "No service is exported." :
    left > 0 ? counted(left, "more service") + " not shown: narrow the filter." : "");
}

function drawClusters(map, choose) {
  const lines = map.clusters.flatMap((c) => (c.gateways?.length ? c.gateways : [{}]).map((g, i) => ({ c, g, i })));
  const items = lines.map(({ c, g, i }) => ({ name: c.name, verdict: c.verdict, unasked: c.unasked, g, i }));
  rows(byId("clusters-rows"), items, (l) => l.name + " " + l.i, (l) => [
    link(l.name, () => choose({ kind: "cluster", key: l.name })), badge(l.verdict),
    l.g.name || (l.unasked ? "could not be asked" : "none"), l.g.ha || "", l.g.cable || "", l.g.summary || "",
  ]);
}

// suggest fills what the form proposes: gateways' nodes, which always exist, and names of services.
function suggest(map) {
  const fill = (id, values) => {
    const list = byId(id), text = JSON.stringify(values);
    if (list.text === text) return;
    list.text = text;
    list.replaceChildren(...values.map((value) => make("option", { value })));
  };
  fill("sources", map.clusters.flatMap((c) => (c.gateways || []).map((g) => c.name + "/" + g.name)).slice(0, maxRows));
  fill("targets", map.services.map((s) => fullName(map, s)).slice(0, maxRows));
}

const fullName = (map, s) => s.name + "." + s.namespace + ".svc." + (map.domain || "clusterset.local");
