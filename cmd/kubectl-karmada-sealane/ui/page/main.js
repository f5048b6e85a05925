
// What the page shows, and where it comes from: a stream of maps, asked for with the token in a header.

const token = new URLSearchParams(location.search).get("token") || "";
const ask = (path) => fetch(path, { cache: "no-store", headers: { Authorization: "Bearer " + token } });
const page = { map: undefined, chosen: undefined, states: new Map(), broken: false, listens: false, heard: 0, age: 0, old: false,
  text: "" };

// silence is how many seconds the command may be silent; it speaks every two.
const silence = 10;

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
  page.trouble = Boolean(frame.trouble);
  if (!frame.map) return pulse();
  page.map = frame.map;
  summarize(frame.map);
  announce(frame.map);
  drawAll();
  page.broken = false;
  if (!frame.trouble) Object.assign(page, { age: 0, old: false });
  page.text = (frame.trouble ? "as of " : "live; last change ") + new Date(frame.map.taken).toLocaleTimeString();
  pulse();
}

// pulse says whether what is shown is live.
function pulse() {
  const silent = Math.floor((Date.now() - page.heard) / 1000);
  if (!page.listens) return;
  if (silent > silence) live(false, "not live: the command has not answered for " + silent + " s. What is shown is old.");
  else if (page.old) live(false, "not live: nothing was read for " + page.age + " s. What is shown is old.");
  else if (page.trouble && !page.map) live(false, "not live: nothing could be read yet");
  else live(!page.trouble, page.text);
}

function live(on, text) {
  byId("pulse").className = on ? "on" : "";
  write(byId("live-text"), text);
}

// listen reads events until the stream ends, and says whether the command has. EventSource has no headers, and an
// address with the token in it would be noted in more places.
async function listen() {
  const answer = await ask("events");
  if (!answer.ok) throw new Error((await answer.text()).trim());
  Object.assign(page, { listens: true, heard: Date.now(), age: 0, old: false, trouble: false, text: "reading" });
  pulse();
  let text = "";
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return false;
    page.heard = Date.now();
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      if (event.startsWith(": age ")) [page.age, page.old] = [parseInt(event.slice(6)), event.endsWith("true")];
      if (!event.startsWith("data: ")) continue;
      const frame = JSON.parse(event.slice(6));
      if (frame.ended) return true;
      take(frame);
    }
  }
}

// listenForever goes on after a stream that broke, and not after the command has ended: its token ends with it, and who
// listens on its port then is somebody else.
async function listenForever() {
  for (;;) {
    let ended = false, why = "the connection broke off; it is tried again";
    try {
      ended = await listen();
    } catch (error) {
      ended = error instanceof TypeError && page.broken; // nobody answers
      why = error instanceof TypeError ? why : error.message;
    }
    page.broken = true;
    page.listens = false;
    if (ended) why = "the command has ended; run it again, and open the new address";
    live(false, "not live: " + why + ". What is shown is old.");
    if (ended) return;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

async function explainPacket(event) {
  event.preventDefault();
  const button = byId("explain-form").querySelector("button");
  const query = new URLSearchParams({ from: byId("explain-from").value, to: byId("explain-to").value });
  button.disabled = true;
  byId("explanation").replaceChildren();
  write(byId("outcome"), "Following the packet…");
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
setInterval(pulse, 1000);
listenForever();
