
// What the page shows, and where it comes from: a stream of maps, asked for with the token in a header.

const token = new URLSearchParams(location.search).get("token") || "";
const ask = (path) => fetch(path, { cache: "no-store", headers: { Authorization: "Bearer " + token } });
const page = { map: undefined, chosen: undefined, states: new Map() };

function choose(what, from) {
  page.chosen = what;
  drawAll();
  byId("details-title").focus({ preventScroll: Boolean(from) });
  if (window.matchMedia("(max-width: 60rem)").matches) byId("details").scrollIntoView();
}

function drawAll() {
  const map = page.map;
  if (!map) return;
  drawMap(map, choose, page.chosen);
  drawProblems(map, choose);
  drawConnections(map, choose);
  drawServices(map, choose);
  drawClusters(map, choose);
  drawDetails(map, page.chosen, choose);
  suggest(map);
}

// announce says which pairs have changed.
function announce(map) {
  const said = [];
  for (const e of map.edges) {
    const before = page.states.get(edgeKey(e));
    if (before && before !== e.state) said.push(edgeName(e) + " are now " + e.state);
  }
  page.states = new Map(map.edges.map((e) => [edgeKey(e), e.state]));
  if (said.length === 0) return;
  const more = said.length > 3 ? "; and " + counted(said.length - 3, "more pair") : "";
  write(byId("changes"), new Date().toLocaleTimeString() + " " + said.slice(0, 3).join("; ") + more);
}

function summarize(map) {
  const pairs = map.edges.filter(isUp).length;
  write(byId("summary"), [counted(map.clusters.length + map.left.clusters, "cluster"),
    pairs + " of " + counted(map.edges.length, "pair") + " connected",
    counted(map.services.length + map.left.services, "service"),
    counted(map.problems.length + map.left.problems, "problem")].join(", "));
}

function take(frame) {
  const trouble = byId("trouble");
  trouble.hidden = !frame.trouble;
  write(trouble, frame.trouble || "");
  if (!frame.map) return;
  page.map = frame.map;
  summarize(frame.map);
  announce(frame.map);
  drawAll();
  live(true, (frame.trouble ? "as of " : "live; last change ") + new Date(frame.map.taken).toLocaleTimeString());
}

function live(on, text) {
  byId("pulse").className = on ? "on" : "";
  write(byId("live-text"), text);
}

// listen reads events until the stream ends. EventSource has no headers, and an address with the token in it would be
// noted in more places.
async function listen() {
  const answer = await ask("events");
  if (!answer.ok) throw new Error((await answer.text()).trim());
  live(true, "live");
  let text = "";
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      if (event.startsWith("data: ")) take(JSON.parse(event.slice(6)));
    }
  }
}

async function listenForever() {
  for (let pause = 1000; ; pause = Math.min(2 * pause, 10000)) {
    let why = "the command has ended, or its address is another now";
    try {
      await listen();
      pause = 1000;
    } catch (error) {
      if (!(error instanceof TypeError)) why = error.message;
    }
    live(false, "not live: " + why + ". What is shown may be old.");
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

async function explainPacket(event) {
  event.preventDefault();
  const button = byId("explain-form").querySelector("button");
  const query = new URLSearchParams({ from: byId("explain-from").value, to: byId("explain-to").value });
  button.disabled = true;
  write(byId("explanation"), "Following the packet…");
  try {
    const answer = await ask("explain?" + query);
    if (!answer.ok) throw new Error((await answer.text()).trim());
    drawExplanation(await answer.json());
  } catch (error) {
    drawExplanation({ error: error.message });
  }
  button.disabled = false;
  button.focus();
}

drawLegend();
byId("explain-form").addEventListener("submit", explainPacket);
byId("services-filter").addEventListener("input", drawAll);
listenForever();
