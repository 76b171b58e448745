"use strict";
/* State and flow: which runs are chosen (in the address), their data, and the parts of the page that show it. */

const state = { runs: [], chosen: [], data: new Map(), panels: new Map(), events: null, compare: null, relative: false };
const main = document.getElementById("main");

const SMALL_CHARTS = [
  ["frames per second", ["fps"]],
  ["policy lag, updates", ["lag_updates"]],
  ["entropy", ["entropy/new", "entropy/replay"]],
  ["KL[μ‖π]", ["kl/new", "kl/replay"]],
  ["mean importance ratio", ["mean_rho/new", "mean_rho/replay"]],
  ["value error", ["value_error/new", "value_error/replay"]],
  ["gradient norm", ["grad_norm/new", "grad_norm/replay", "grad_norm"]],
  ["unrolls in replay", ["replay/held"]],
];
const FEW_POINTS = 150; /* a curve with no more values than that shows each of them: one alone makes no line */

/* ---- the address: #run=ID&run=ID&theme=dark ---- */

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  state.chosen = given.getAll("run");
  const theme = given.get("theme") || localStorage.getItem("clearl-theme");
  setTheme(theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
}

function writeAddress() {
  const shown = new URLSearchParams(state.chosen.map((id) => ["run", id]));
  history.replaceState(null, "", `#${shown}`);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  for (const id of state.chosen) if (state.data.has(id)) show(id);
}

/* ---- data ---- */

async function fetchJson(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw Object.assign(new Error(`${answer.status} ${await answer.text()}`), { status: answer.status });
  return answer.json();
}

async function loadRuns() {
  state.runs = await fetchJson("api/runs");
  if (!state.chosen.length && state.runs.length) {
    const running = state.runs.find((run) => run.status === "running") || state.runs[0];
    state.chosen = [running.id];
  }
  drawList();
}

const pending = new Set(), again = new Set();
async function loadRun(id) {
  if (pending.has(id)) { again.add(id); return; }
  pending.add(id);
  try {
    state.data.set(id, await fetchJson(`api/runs/${encodeURIComponent(id)}`));
    show(id);
    connection("live");
  } catch (error) {
    if (error.status === 404) showMissing(id);
    else connection(`lost: ${error.message}`);
  } finally {
    pending.delete(id);
    if (again.delete(id)) setTimeout(() => loadRun(id), 500);
  }
}

function listen() {
  state.events?.close();
  const query = new URLSearchParams(state.chosen.map((id) => ["run", id]));
  const events = state.events = new EventSource(`api/events?${query}`);
  let opened = false;
  events.addEventListener("open", () => {
    connection("live");
    if (opened) runsChanged(); /* the server was away: anything may have changed */
    else state.chosen.forEach(loadRun);
    opened = true;
  });
  events.addEventListener("run", (event) => loadRun(event.data));
  events.addEventListener("runs", runsChanged);
  events.addEventListener("error", () => connection("connection lost, trying again"));
}

async function runsChanged() {
  const before = state.chosen.length;
  await loadRuns();
  if (before !== state.chosen.length) choose(state.chosen);
  else state.chosen.forEach(loadRun);
}

function connection(text) {
  const node = document.getElementById("connection");
  node.textContent = text;
  node.className = text === "live" ? "" : "lost";
}

/* ---- the list of runs ---- */

function filteredRuns() {
  const wanted = document.getElementById("filter").value.toLowerCase();
  return state.runs.filter((run) => `${run.name} ${run.arm ?? ""} ${run.method ?? ""} ${run.suite ?? ""}`.toLowerCase().includes(wanted));
}

function drawList() {
  const focused = document.activeElement?.dataset.key;
  document.getElementById("runs").replaceChildren(...filteredRuns().map((run) => {
    const box = element("input", { type: "checkbox", "aria-label": `compare ${run.name}`, "data-key": `box ${run.id}` });
    box.checked = state.chosen.includes(run.id);
    box.addEventListener("change", () => toggle(run.id));
    const progress = run.total_frames && run.frames !== null ? `${Math.min(100, (100 * run.frames) / run.total_frames).toFixed(0)} %` : shortNumber(run.frames);
    const button = element("button", { "data-key": `run ${run.id}`, on: { click: () => choose([run.id]) } },
      document.createTextNode(run.name + " "), element("span", { class: `pill ${run.status}`, text: run.status ?? "?" }),
      element("br"), element("small", { text: `${run.arm ?? run.method ?? ""} · ${progress}` }));
    return element("li", { class: state.chosen.includes(run.id) ? "chosen" : "" }, box, button);
  }));
  /* The list is made anew while runs go on: who walks through it with Tab keeps the place. */
  if (focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
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

/* ---- panels ---- */

function layOut() {
  for (const id of [...state.panels.keys()]) if (!state.chosen.includes(id)) state.panels.delete(id);
  for (const id of state.chosen) if (!state.panels.has(id)) state.panels.set(id, makePanel());
  state.compare = state.chosen.length > 1 ? makeCompare() : null;
  const nodes = state.chosen.map((id) => state.panels.get(id).node);
  const hint = state.runs.length ? "No run is chosen. Pick one on the left; tick several to compare them." : "No runs here yet. The page follows as soon as one starts.";
  if (!nodes.length) nodes.push(element("p", { class: "empty", text: hint }));
  main.replaceChildren(...(state.compare ? [state.compare.node] : []), ...nodes);
}

function makeCompare() {
  const cards = element("div", { class: "cards" });
  return { node: element("article", { class: "run" }, element("h2", { text: "Side by side" }), cards), cards, charts: new Map() };
}

function drawCompare() {
  if (!state.compare) return;
  const known = state.chosen.map((id) => state.data.get(id)).filter(Boolean);
  const tasks = [...new Set(known.flatMap((run) => Object.keys(run.evaluations)))];
  for (const task of tasks) {
    if (!state.compare.charts.has(task)) {
      const chart = new Chart(`return on ${task}`);
      state.compare.charts.set(task, chart);
      state.compare.cards.append(chart.node);
    }
    state.compare.charts.get(task).draw(known.filter((run) => run.evaluations[task]).map((run, index) => ({
      label: run.name, colour: colourOf(index), dash: dashOf(index), width: 2, points: true,
      frames: run.evaluations[task].frames, values: run.evaluations[task].values.return ?? run.evaluations[task].frames.map(() => null),
    })));
  }
}

function makePanel() {
  const parts = {
    title: element("h2"), status: element("span", { class: "pill" }), silence: element("span", { class: "warn", role: "status" }), facts: element("dl", { class: "facts" }),
    ribbon: element("canvas", { class: "ribbon", role: "img", "aria-label": "the plan of the run and where it stands" }),
    cards: element("div", { class: "cards" }), returns: new Chart("return of every task (thick while it is trained)", { wide: true, buttons: [scaleButton()] }),
    matrix: element("section", { class: "card wide" }), memory: element("section", { class: "card" }),
    health: element("section", { class: "card" }), events: element("section", { class: "card" }), video: element("section", { class: "card" }),
    config: element("pre"), charts: new Map(), videoStamp: null, heard: null,
  };
  const settings = element("details", { class: "card wide" }, element("summary", { text: "settings" }), parts.config);
  parts.cards.append(parts.returns.node, parts.matrix, parts.memory, parts.health, parts.events, parts.video, settings);
  parts.node = element("article", { class: "run" }, element("div", { class: "head" }, parts.title, parts.status, parts.silence), parts.facts, parts.ribbon, parts.cards);
  parts.settings = settings;
  return parts;
}

/* An old link, or one to a run below another directory. */
function showMissing(id) {
  const panel = state.panels.get(id);
  if (!panel || state.data.has(id)) return;
  panel.node.classList.add("missing");
  panel.title.textContent = `No run with the id ${id} is here: it was deleted, or lies below another directory.`;
}

function show(id) {
  const run = state.data.get(id), panel = state.panels.get(id);
  if (!run || !panel) return;
  panel.node.classList.remove("missing");
  const tasks = [...new Set([...run.tasks, ...run.segments.flatMap((segment) => segment.tasks), ...Object.keys(run.evaluations)])];
  const status = run.gone ? "gone" : run.status;
  panel.title.textContent = run.name;
  panel.status.textContent = run.gone ? "directory deleted" : status;
  panel.heard = Date.now() - 1000 * (run.silent_s ?? 0);
  showSilence(panel, run);
  panel.status.className = `pill ${status}`;
  drawFacts(panel.facts, run);
  const ends = run.segments.map((segment) => segment.end_frames ?? 0);
  const whole = run.segments.length === run.planned_segments;
  const begin = whole ? 0 : run.segments[0].start_frames, end = Math.max(whole ? run.total_frames ?? 0 : 0, ...ends);
  drawRibbon(panel.ribbon, run.segments, tasks, run.frames, begin, end);
  panel.ribbon.setAttribute("aria-label", ribbonText(run));
  panel.returns.draw(returnLines(run, tasks));
  drawMatrix(panel.matrix, run, tasks);
  drawSmallCharts(panel, run);
  drawMemory(panel.memory, run);
  drawHealth(panel.health, run);
  drawEvents(panel.events, run);
  drawVideo(panel, run, id);
  if (panel.config.textContent !== run.config) panel.config.textContent = run.config; /* a reader may have selected part of it */
  drawCompare();
}

/* A killed run cannot say so: its rows just end. */
function showSilence(panel, run) {
  const seconds = (Date.now() - panel.heard) / 1000;
  const silent = run.status === "running" && !run.gone && seconds > 60;
  panel.silence.textContent = silent ? `no new row for ${duration(seconds)}: it hangs, was killed, or evaluates for long` : "";
}

setInterval(() => {
  for (const [id, panel] of state.panels) if (panel.heard && state.data.has(id)) showSilence(panel, state.data.get(id));
}, 1000);

function ribbonText(run) {
  const now = [...run.segments].reverse().find((segment) => (segment.start_frames ?? Infinity) <= run.frames);
  const of = run.forever ? "" : ` of ${run.planned_segments}`; /* a plan without an end has no last segment */
  const here = now ? `segment ${now.index + 1}${of}, ${now.tasks.join(" and ")}` : "not begun";
  return `the plan of the run; now: ${here}`;
}

function drawFacts(node, run) {
  const left = run.total_frames && run.fps ? Math.max(0, run.total_frames - run.frames) / run.fps : null;
  const facts = [
    ["method", run.arm ?? run.method], ["on", `${run.suite}, ${run.protocol}`], ["seed", run.seed],
    ["frames", run.total_frames ? `${run.frames.toLocaleString("en")} of ${run.total_frames.toLocaleString("en")}` : run.frames.toLocaleString("en")],
    ["training", run.training.join(", ") || "–"], ["frames/s", shortNumber(run.fps)],
    ["left", run.status !== "running" ? "–" : run.forever ? "no end" : left === null ? "–" : duration(left)],
    ["lag", run.lag_updates === null ? "–" : `${shortNumber(run.lag_updates)} updates`],
    ["resumed", run.counts.resume], ["faults", run.counts.fault],
  ];
  node.replaceChildren(...facts.map(([name, value]) => element("div", {}, element("dt", { text: name }), element("dd", { text: String(value ?? "–") }))));
}

function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

/* Two lines for a task: a thin one throughout, a thick one where the task is being trained. */
function returnLines(run, tasks) {
  return tasks.filter((task) => run.evaluations[task]).flatMap((task) => {
    const { frames, values } = run.evaluations[task], given = values.return ?? frames.map(() => null);
    const returns = state.relative ? onOwnScale(given) : given;
    const colour = colourOf(tasks.indexOf(task)), dash = dashOf(tasks.indexOf(task));
    const spans = run.segments.filter((segment) => segment.tasks.includes(task) && segment.start_frames !== null);
    const trained = frames.map((at, index) => spans.some((span) => at >= span.start_frames && at <= (span.end_frames ?? Infinity)) ? returns[index] : null);
    return [
      { label: task, colour, dash, width: 1.2, points: frames.length < FEW_POINTS, frames, values: returns, given },
      { label: null, colour, dash: [], width: 3.5, frames, values: trained, spanGaps: false },
    ];
  });
}

/* From 0, the lowest that the task has had, to 1, its highest: games with small scores are seen next to large ones. */
function onOwnScale(values) {
  const known = values.filter((value) => value !== null), low = Math.min(...known), high = Math.max(...known);
  return values.map((value) => value === null || high === low ? value && 0 : (value - low) / (high - low));
}

function scaleButton() {
  return element("button", { class: "scales", text: "scales", title: "each task from its lowest to its highest return (s)", "aria-pressed": String(state.relative), on: { click: flipScales } });
}

function flipScales() {
  state.relative = !state.relative;
  for (const button of document.querySelectorAll(".scales")) button.setAttribute("aria-pressed", String(state.relative));
  state.chosen.forEach(show);
}

function drawMatrix(node, run, tasks) {
  node.hidden = !run.switches.length;
  if (run.switches.length) {
    replaceScrolled(node, ".scroll", element("h3", { text: "score of every task at the end of every visit (underlined: the task just trained)" }),
      element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "score of every task at the end of every visit" }, matrixTable(run, tasks)));
  }
}

/* Replace what a card holds; what the reader has scrolled to stays in view. */
function replaceScrolled(node, scrolled, ...children) {
  const before = node.querySelector(scrolled), focused = before === document.activeElement;
  const { scrollLeft: left, scrollTop: top } = before ?? { scrollLeft: 0, scrollTop: 0 };
  node.replaceChildren(...children);
  const after = node.querySelector(scrolled);
  Object.assign(after, { scrollLeft: left, scrollTop: top });
  if (before && focused) after.focus({ preventScroll: true });
}

function drawSmallCharts(panel, run) {
  for (const [title, names] of SMALL_CHARTS) {
    const lines = names.filter((name) => run.train.values[name]).map((name) => ({
      label: name.includes("/") ? name.split("/")[1] : names.length > 1 ? "whole batch" : "", colour: colourOf(names.indexOf(name)), dash: [], width: 1.5,
      points: run.train.values[name].filter((value) => value !== null).length < FEW_POINTS / 3,
      frames: run.train.frames, values: run.train.values[name],
    }));
    if (!lines.length) continue;
    if (!panel.charts.has(title)) {
      const chart = new Chart(title);
      panel.charts.set(title, chart);
      panel.cards.insertBefore(chart.node, panel.memory);
    }
    panel.charts.get(title).draw(lines);
  }
}

function drawMemory(node, run) {
  const byTask = run.replay.by_task ?? null;
  node.hidden = !run.replay.held;
  const rows = byTask ? Object.entries(byTask).map(([task, entry]) => [task, shortNumber(entry.unrolls ?? entry), entry.median_age_frames === undefined ? "–" : shortNumber(entry.median_age_frames)]) : [];
  const table = rows.length ? simpleTable(["task", "unrolls", "median age, frames"], rows) : null;
  node.replaceChildren(element("h3", { text: "in replay" }),
    element("p", { class: "soft", text: `${shortNumber(run.replay.held)} unrolls, ${shortNumber(run.replay.bytes)}B` }), table ?? "");
}

function drawHealth(node, run) {
  const rows = Object.entries(run.health).map(([name, entry]) => [name, entry.state ?? "–", String(entry.restarts ?? 0)]);
  node.hidden = !rows.length;
  node.replaceChildren(element("h3", { text: run.status === "running" ? "processes" : "processes, when the run ended" }), simpleTable(["process", "state", "restarts"], rows));
}

function drawEvents(node, run) {
  node.hidden = !run.events.length;
  const lines = [...run.events].reverse().map((event) => element("li", {
    text: event.kind === "resume" ? `frame ${shortNumber(event.frames)}: resumed` : `frame ${shortNumber(event.frames)}: ${event.worker ?? ""} ${event.kind === "restart" ? "works again" : event.problem ?? ""}`,
  }));
  replaceScrolled(node, ".events", element("h3", { text: "faults, restarts and resumes" }), element("ul", { class: "events", tabindex: "0", "aria-label": "faults, restarts and resumes" }, ...lines));
}

function drawVideo(panel, run, id) {
  panel.video.hidden = !run.video;
  if (!run.video || run.video_stamp === panel.videoStamp) return;
  panel.videoStamp = run.video_stamp;
  const source = `api/runs/${encodeURIComponent(id)}/videos/${encodeURIComponent(run.video)}?at=${run.video_stamp}`;
  const shown = run.video.endsWith(".gif") ? element("img", { src: source, alt: run.video }) : element("video", { src: source, controls: "", loop: "", muted: "" });
  panel.video.replaceChildren(element("h3", { text: `last video: ${run.video}` }), shown);
}

function simpleTable(head, rows) {
  return element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { text })))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((text) => element("td", { text })))))));
}

/* ---- keys and buttons ---- */

function flipTheme() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("clearl-theme", theme);
  setTheme(theme);
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
  try {
    await loadRuns();
  } catch (error) {
    connection(`lost: ${error.message}`);
  }
  choose(state.chosen);
})();
