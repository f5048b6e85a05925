
// Details of what was chosen, brought up to date with the map.

function detailsOf(map, chosen, choose) {
  switch (chosen?.kind) {
    case "edge": {
      const e = map.edges.find((edge) => edgeKey(edge) === chosen.key);
      return e && [edgeName(e), edgeDetails(e, choose)];
    }
    case "cluster": {
      const c = map.clusters.find((cluster) => cluster.name === chosen.key);
      return c && [c.name, clusterDetails(map, c, choose)];
    }
    case "service": {
      const s = map.services.find((service) => serviceKey(service) === chosen.key);
      return s && [serviceKey(s), serviceDetails(map, s)];
    }
  }
  return ["Details", [make("p", { class: "hint" },
    "Choose a cluster, a connection or a service, here or in the tables, to see what is known of it.")]];
}

function edgeDetails(e, choose) {
  const to = (name) => link(name, () => choose({ kind: "cluster", key: name }));
  const parts = [make("p", {}, badge(e.state), " between ", to(e.a), " and ", to(e.b)),
    facts([["round trip", milliseconds(e.rtt)], ["loss", percent(e.loss)], ["without gateways", together(e.ways)]])];
  for (const t of e.tunnels || []) {
    const title = t.gateway ? t.from + ": " + t.gateway + " to " + t.remoteGateway : t.from + " reports";
    const part = t.carries ? ", carries" : t.gateway ? ", in reserve" : "";
    const about = (text) => (t.rounded && text ? "about " : "") + text;
    parts.push(make("h3", {}, title), facts([
      ["state", t.status + part], ["since", t.since ? new Date(t.since).toLocaleString() : ""],
      ["round trip", about(milliseconds(t.rtt))], ["loss", about(percent(t.loss))],
      ["traffic", t.sent ? t.received + " received, " + t.sent + " sent" : ""], ["address", (t.address || "") + (t.nat ? " (NAT)" : "")],
      ["largest packet", t.mtu ? t.mtu + " bytes" : ""], ["says", t.message]]));
  }
  if (!e.tunnels?.length) parts.push(make("p", { class: "hint" }, "Neither cluster reports a tunnel to the other."));
  return parts;
}

function clusterDetails(map, c, choose) {
  const parts = [make("p", {}, badge(c.verdict), c.accepted === "True" ? " accepted" : " accepted: " + c.accepted),
    facts([["ClusterSet", c.set], ["pods", together(c.pods)], ["services", together(c.services)],
      ["known by", together(c.global)], ["says", c.message], ["not asked", c.unasked]])];
  for (const g of c.gateways || []) {
    parts.push(make("h3", {}, "gateway " + g.name), facts([["role", g.ha], ["ready", g.ready], ["slot", String(g.slot)],
      ["cable", g.cable], ["key", g.key], ["version", g.version], ["says", g.summary]]));
  }
  const edges = map.edges.filter((e) => e.a === c.name || e.b === c.name);
  const wrong = edges.filter((e) => e.state !== "connected");
  const list = (edges.length > maxGraph ? wrong : edges).slice(0, maxRows);
  const right = (edges.length - wrong.length) + " of " + counted(edges.length, "connection") + " as they should be";
  if (edges.length) parts.push(make("h3", {}, right));
  for (const e of list) {
    parts.push(make("p", {}, badge(e.state), " ",
      link(e.a === c.name ? e.b : e.a, () => choose({ kind: "edge", key: edgeKey(e) }), edgeText(e))));
  }
  return parts;
}

function serviceDetails(map, s) {
  const name = fullName(map, s);
  const to = () => {
    byId("explain-to").value = name;
    byId("explain-from").focus();
  };
  const parts = [make("p", { class: "mono" }, name),
    make("p", {}, make("button", { type: "button", onclick: to }, "Follow a packet to it")),
    facts([["type", s.type], ["ports", together(s.ports)], ["mode", s.mode], ["policy", s.policy],
      ["problems", (s.problems || []).join("\n")]])];
  for (const e of s.exports || []) {
    parts.push(make("h3", {}, "exported by " + e.cluster), make("p", {}, badge(e.state)),
      facts([["ready backends", e.backends], ["says", e.message]]));
  }
  for (const i of s.imports || []) {
    parts.push(make("h3", {}, "used in " + i.cluster), facts([["served by", serves(i)], ["ready", i.ready],
      ["address", together(i.ips)], ["says", i.message]]));
  }
  return parts;
}

function drawDetails(map, chosen, choose) {
  const found = detailsOf(map, chosen, choose);
  const [title, parts] = found || ["Details", [make("p", { class: "hint" }, chosen.key + " is not there any more.")]];
  const body = byId("details-body"), fresh = make("div", {}, ...parts);
  write(byId("details-title"), title);
  // A body that says the same stays, with its focus.
  const text = fresh.textContent + JSON.stringify(chosen ?? null);
  if (body.text === text) return;
  body.text = text;
  const buttons = [...body.querySelectorAll("button")], at = buttons.indexOf(document.activeElement);
  body.replaceChildren(fresh);
  if (at >= 0) (body.querySelectorAll("button")[at] || byId("details-title")).focus();
}

// drawExplanation writes whether the packet arrives, which is read aloud, and the steps of its way.
function drawExplanation(answer) {
  const out = byId("explanation"), outcome = byId("outcome");
  if (answer.error) {
    outcome.replaceChildren("This could not be followed.");
    out.replaceChildren(make("p", { class: "error" }, answer.error));
    return;
  }
  outcome.replaceChildren("From " + answer.from + " to " + answer.to + ": arrives ", badge(answer.arrives));
  out.replaceChildren(make("ol", { class: "steps" }, ...(answer.steps || []).map((s) => make("li", {}, badge(s.verdict),
    " ", make("b", {}, s.step), (s.at ? " at " + s.at : "") + ": " + s.found,
    s.verdict === "ok" ? "" : facts([["expected", s.expected], ["to do", s.remedy]])))));
}
