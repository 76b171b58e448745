"use strict";
/* State and flow: which runs are chosen (in the address), their data, the list of runs, and the keys. */

const state = { runs: [], notes: [], chosen: [], theme: null, data: new Map(), panels: new Map(), events: null, compare: null, relative: false };
const main = document.getElementById("main");

/* ---- the address: #run=ID&run=ID&theme=dark ---- */

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  state.chosen = given.getAll("run");
  state.theme = given.get("theme");
  const theme = state.theme || localStorage.getItem("clearl-theme");
  setTheme(theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
}

function writeAddress() {
  const shown = new URLSearchParams(state.chosen.map((id) => ["run", id]));
  if (state.theme) shown.set("theme", state.theme);
  history.replaceState(null, "", `#${shown}`);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  drawList();
  for (const id of state.chosen) if (state.data.has(id)) show(id);
}

/* ---- data ---- */

async function fetchJson(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw Object.assign(new Error(`${answer.status} ${await answer.text()}`), { status: answer.status });
  return answer.json();
}

/* A job with the same key runs once at a time, and once more if it was asked for meanwhile. */
const pending = new Set(), again = new Set();
async function oneAtATime(key, job) {
  if (pending.has(key)) { again.add(key); return; }
  pending.add(key);
  try {
    await job();
    connection("live");
  } catch (error) {
    connection(`lost: ${error.message}`);
  } finally {
    pending.delete(key);
    if (again.delete(key)) setTimeout(() => oneAtATime(key, job), 250);
  }
}

const loadRun = (id) => oneAtATime(id, async () => {
  try {
    state.data.set(id, await fetchJson(`api/runs/${encodeURIComponent(id)}`));
    show(id);
  } catch (error) {
    if (error.status !== 404) throw error;
    showMissing(id);
  }
});

const loadRuns = () => oneAtATime("list", async () => {
  const { runs, notes } = await fetchJson("api/runs");
  Object.assign(state, { runs, notes });
  if (!state.chosen.length && runs.length) choose([(runs.find((run) => run.status === "running" && !run.silent) ?? runs[0]).id]);
  else drawList();
});

function listen() {
  state.events?.close();
  const query = new URLSearchParams(state.chosen.map((id) => ["run", id]));
  const events = state.events = new EventSource(`api/events?${query}`);
  let opened = false;
  events.addEventListener("open", () => {
    connection("live");
    if (opened || !state.runs.length) loadRuns(); /* the server was away: anything may have changed */
    state.chosen.forEach(loadRun);
    opened = true;
  });
  events.addEventListener("run", (event) => loadRun(event.data));
  events.addEventListener("runs", loadRuns);
  events.addEventListener("error", () => connection("connection lost, trying again"));
}

function connection(text) {
  const node = document.getElementById("connection");
  node.textContent = text;
  node.className = text === "live" ? "" : "lost";
}

/* ---- the list of runs ---- */

function filteredRuns() {
  const wanted = document.getElementById("filter").value.toLowerCase();
  return state.runs.filter((run) => `${run.name} ${run.arm ?? ""} ${run.method ?? ""} ${run.suite ?? ""} ${statusOf(run)}`.toLowerCase().includes(wanted));
}

function drawList() {
  const focused = document.activeElement?.dataset.key;
  document.getElementById("notes").textContent = state.notes.join("; ");
  document.getElementById("runs").replaceChildren(...filteredRuns().map(listEntry));
  /* The list is made anew while runs go on: who walks through it with Tab keeps the place. */
  if (focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

function listEntry(run) {
  const box = element("input", { type: "checkbox", "aria-label": `compare ${run.name}`, "data-key": `box ${run.id}`, on: { change: () => toggle(run.id) } });
  const pill = element("span"), place = state.chosen.indexOf(run.id);
  box.checked = place >= 0;
  showStatus(pill, run);
  const share = run.total_frames && run.frames !== null ? Math.min(1, run.frames / run.total_frames) : null;
  const progress = share === null ? shortNumber(run.frames) : `${(100 * share).toFixed(0)} %`;
  const button = element("button", { "data-key": `run ${run.id}`, on: { click: () => choose([run.id]) } },
    document.createTextNode(run.name + " "), pill, element("br"), element("small", { text: `${run.arm ?? run.method ?? ""} · ${progress}` }));
  if (statusOf(run) === "running" && share !== null) {
    const bar = element("span", { class: "bar" });
    bar.style.setProperty("--share", `${100 * share}%`);
    button.append(bar);
  }
  const entry = element("li", { class: place >= 0 ? "chosen" : "" }, box, button);
  if (place >= 0 && state.chosen.length > 1) entry.style.setProperty("--swatch", colourOf(place));
  return entry;
}

function toggle(id) {
  choose(state.chosen.includes(id) ? state.chosen.filter((each) => each !== id) : [...state.chosen, id]);
}

function choose(ids) {
  state.chosen = ids;
  writeAddress();
  drawList();
  layOut();
  ids.filter((id) => state.data.has(id)).forEach(show); /* as it was, until the newest rows are here */
  listen();
}

function layOut() {
  for (const [id, panel] of state.panels) {
    if (state.chosen.includes(id)) continue;
    dropPanel(panel);
    state.panels.delete(id);
  }
  state.compare?.charts.forEach((chart) => chart.destroy());
  for (const id of state.chosen) if (!state.panels.has(id)) state.panels.set(id, makePanel(id));
  state.compare = state.chosen.length > 1 ? makeCompare() : null;
  const nodes = state.chosen.map((id) => state.panels.get(id).node);
  const hint = state.runs.length ? "No run is chosen. Pick one on the left; tick several to compare them." : "No runs here yet. The page follows as soon as one starts.";
  if (!nodes.length) nodes.push(element("p", { class: "empty", text: hint }));
  main.replaceChildren(...(state.compare ? [state.compare.node] : []), ...nodes);
}

/* ---- keys and buttons ---- */

function flipTheme() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("clearl-theme", theme);
  if (state.theme) state.theme = theme;
  setTheme(theme);
  writeAddress();
}

function flipHelp() {
  const keys = document.getElementById("keys"), button = document.getElementById("help");
  keys.hidden = !keys.hidden;
  button.setAttribute("aria-expanded", String(!keys.hidden));
}

function step(by) {
  const runs = filteredRuns();
  if (!runs.length) return;
  const place = runs.findIndex((run) => run.id === state.chosen[0]);
  choose([runs[(place < 0 && by < 0 ? -1 : place + by + runs.length) % runs.length].id]);
}

function addNext() {
  const next = filteredRuns().find((run) => !state.chosen.includes(run.id));
  if (next) toggle(next.id);
}

const KEYS = { j: () => step(1), k: () => step(-1), x: addNext, d: flipTheme, s: flipScales, "?": flipHelp, "/": () => document.getElementById("filter").focus() };
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input[type=search]") || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});
document.getElementById("theme").addEventListener("click", flipTheme);
document.getElementById("help").addEventListener("click", flipHelp);
document.getElementById("filter").addEventListener("input", drawList);
addEventListener("resize", () => state.chosen.forEach(show));
addEventListener("hashchange", () => { readAddress(); choose(state.chosen); });

(async () => {
  readAddress();
  const opened = state.chosen.length;
  await loadRuns();
  if (opened || !state.chosen.length) choose(state.chosen);
})();
