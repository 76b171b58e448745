"use strict";
/* One run: its panel with summary, plan, charts and tables; and several runs in one chart for each task. */

const FEW_POINTS = 150; /* a wide chart with no more values in a curve shows each of them */
const MOST_MARKS = 60; /* switches of tasks that are marked in a chart */

const halves = (name) => () => [[`${name}/new`, "new"], [`${name}/replay`, "replay"]];
const single = (name) => () => [[name, ""]];
const ending = (end) => (run) => Object.keys(run.train.values).filter((name) => name.endsWith(end)).sort().map((name) => [name, name.slice(0, -end.length)]);
const terms = (of) => (run) => termsOf(run).map((term) => [of(term), term]);
const episodes = (run, tasks) => tasks.map((task) => [`episodes/${task}`, task, trainedAt(run, task)]);

/* Charts of the training rows: a title; from the run and its tasks, each curve (see watch/series.py) with its label, and
   where it is there, if not everywhere; and whether the values are worth a chart. */
const GROUPS = [
  ["learning", [
    ["return of training episodes", episodes],
    ["losses", terms((term) => `loss/${term}`)],
    ["gradient norm by loss term", terms((term) => `${term}/terms`)],
    ["gradient norm", () => [["grad_norm/new", "new"], ["grad_norm/replay", "replay"], ["grad_norm", "whole batch"]]],
    ["value error", halves("value_error")],
    ["learning rate", single("learning_rate"), varies],
  ]],
  ["new and replayed experience", [
    ["entropy", halves("entropy")],
    ["KL[μ‖π]", halves("kl")],
    ["mean importance ratio", halves("mean_rho")],
    ["share of clipped ratios", halves("clipped_share")],
    ["cosine of both gradients", single("cosine/between")],
    ["told by the method", ending("/method")],
  ]],
  ["speed, memory and processes", [
    ["frames per second", single("fps")],
    ["policy lag, updates", single("lag_updates")],
    ["unrolls in replay", single("held"), (values) => values.some(Boolean)],
  ]],
];

/* The terms of the loss, so that each has one colour in all charts. */
function termsOf(run) {
  const names = Object.keys(run.train.values);
  return [...new Set([...names.filter((name) => name.startsWith("loss/")).map((name) => name.slice(5)), ...ending("/terms")(run).map(([, term]) => term)])].sort();
}

function varies(values) {
  const known = values.filter((value) => (value ?? null) !== null);
  return known.some((value) => value !== known[0]);
}

/* ---- the panel ---- */

function makePanel(id) {
  const parts = {
    title: element("h2"), status: element("span", { class: "pill" }), warning: element("span", { class: "warn", role: "status" }), facts: element("dl", { class: "facts" }),
    ribbon: element("canvas", { class: "ribbon", role: "img" }), now: element("span", { class: "soft" }),
    returns: new Chart("return of every task (thick while it is trained)", { wide: true, sync: id, buttons: [scaleButton()] }),
    success: new Chart("success rate of every task", { wide: true, sync: id }),
    matrix: element("section", { class: "card wide" }), memory: element("section", { class: "card" }),
    health: element("section", { class: "card processes" }), events: element("section", { class: "card" }), video: element("section", { class: "card" }),
    config: element("pre"), charts: new Map(), groups: GROUPS.map(([name]) => makeGroup(name)), videoStamp: null, heard: null,
  };
  const savePlan = saveButton(() => figure("plan", parts.ribbon, parts.returns.named));
  const plan = element("section", { class: "plan" }, element("header", {}, element("h3", { text: "plan" }), parts.now, savePlan), parts.ribbon);
  const settings = element("details", { class: "card" }, element("summary", { text: "settings" }), parts.config);
  parts.ribbon.addEventListener("mousemove", (event) => { parts.ribbon.title = segmentText(parts.ribbon.segmentAt?.(event.offsetX / parts.ribbon.clientWidth)); });
  parts.groups.at(-1).tables.append(parts.memory, parts.health, parts.events, parts.video);
  parts.node = element("article", { class: "run" }, element("div", { class: "head" }, parts.title, parts.status, parts.warning), parts.facts, plan,
    element("div", { class: "cards" }, parts.returns.node, parts.success.node, parts.matrix), ...parts.groups.map((group) => group.node), settings);
  return parts;
}

function makeGroup(name) {
  const cards = element("div", { class: "cards" }), tables = element("div", { class: "cards tables" });
  return { node: element("section", { class: "group", hidden: "" }, element("h3", { text: name }), cards, tables), cards, tables };
}

function dropPanel(panel) {
  for (const chart of [panel.returns, panel.success, ...panel.charts.values()]) chart.destroy();
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
  const many = state.chosen.length > 1;
  panel.title.textContent = run.name;
  panel.title.className = many ? "keyed" : "";
  panel.title.style.setProperty("--swatch", many ? swatch(colourOf(state.chosen.indexOf(id)), dashOf(state.chosen.indexOf(id))) : "none");
  showStatus(panel.status, run);
  panel.heard = Date.now() - 1000 * run.silent_s;
  showWarning(panel, run);
  drawFacts(panel.facts, run);
  drawPlan(panel, run, tasks);
  panel.returns.draw(returnLines(run, tasks));
  drawSuccess(panel.success, run, tasks);
  drawMatrix(panel.matrix, run, tasks);
  drawTrainCharts(panel, run, tasks, id);
  drawMemory(panel.memory, run);
  drawHealth(panel.health, run);
  drawEvents(panel.events, run);
  drawVideo(panel, run, id);
  for (const group of panel.groups) group.node.hidden = ![...group.cards.children, ...group.tables.children].some((card) => !card.hidden);
  if (panel.config.textContent !== run.config) panel.config.textContent = run.config; /* a reader may have selected part of it */
  drawCompare();
}

const statusOf = (run) => run.silent ? "silent" : run.status ?? "?";

function showStatus(pill, run) {
  pill.textContent = statusOf(run);
  pill.className = `pill ${statusOf(run)}`;
  pill.title = { silent: "it says it is running and writes no rows", deleted: "the directory was deleted; what had been read stays here" }[statusOf(run)] ?? "";
}

/* A killed run cannot say so: its rows just end. */
function showWarning(panel, run) {
  const silence = run.silent ? `no new row for ${duration((Date.now() - panel.heard) / 1000)}: it hangs, was killed, or evaluates for long` : "";
  panel.warning.textContent = run.problem || silence;
}

setInterval(() => {
  for (const [id, panel] of state.panels) if (panel.heard && state.data.has(id)) showWarning(panel, state.data.get(id));
}, 1000);

function drawFacts(node, run) {
  const left = run.total_frames && run.fps ? Math.max(0, run.total_frames - run.frames) / run.fps : null;
  const shares = run.training.map((task) => run.shares[task] === undefined ? task : `${task} ${Math.round(100 * run.shares[task])} %`);
  const facts = [
    ["method", run.arm ?? run.method], ["on", `${run.suite}, ${run.protocol}`], ["seed", run.seed],
    ["frames", run.total_frames ? `${run.frames.toLocaleString("en")} of ${run.total_frames.toLocaleString("en")}` : run.frames.toLocaleString("en")],
    ["training", shares.join(", ") || "–"], ["frames/s", shortNumber(run.fps)],
    ["trained for", duration(run.wall_s)],
    ["left", statusOf(run) !== "running" ? "–" : run.forever ? "no end" : left === null ? "–" : duration(left)],
    ["updates", shortNumber(run.updates)],
    ["lag", run.lag_updates === null ? "–" : `${shortNumber(run.lag_updates)} updates`],
    ["resumed", run.counts.resume], ["faults", run.counts.fault],
  ];
  node.replaceChildren(...facts.map(([name, value]) => element("div", {}, element("dt", { text: name }), element("dd", { text: String(value ?? "–") }))));
}

function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

/* ---- the plan ---- */

function drawPlan(panel, run, tasks) {
  const ends = run.segments.map((segment) => segment.end_frames ?? 0);
  const whole = run.segments.length === run.planned_segments;
  const begin = whole ? 0 : run.segments[0].start_frames, end = Math.max(whole ? run.total_frames ?? 0 : 0, ...ends);
  drawRibbon(panel.ribbon, run.segments, tasks, run.frames, begin, end);
  const text = nowText(run);
  panel.now.textContent = text;
  panel.ribbon.setAttribute("aria-label", `the plan of the run; now: ${text}`);
}

function nowText(run) {
  const now = run.segments.findLast((segment) => (segment.start_frames ?? Infinity) <= run.frames);
  const of = run.forever ? "" : ` of ${run.planned_segments}`; /* a plan without an end has no last segment */
  return now ? `segment ${now.index + 1}${of}, ${now.tasks.join(" and ")}` : "not begun";
}

function segmentText(segment) {
  if (!segment) return "";
  const bounds = [segment.start_frames, segment.end_frames].map((frames) => frames === null ? "the end" : frames.toLocaleString("en"));
  return `segment ${segment.index + 1}: ${segment.tasks.join(", ")}, frames ${bounds.join(" to ")}`;
}

/* ---- charts ---- */

/* Two lines for a task: a thin one throughout, a thick one where the task is being trained. */
function returnLines(run, tasks) {
  return tasks.filter((task) => run.evaluations[task]).flatMap((task) => {
    const { frames, values } = run.evaluations[task], given = values.return ?? frames.map(() => null);
    const returns = state.relative ? onOwnScale(given) : given;
    const colour = colourOf(tasks.indexOf(task)), dash = dashOf(tasks.indexOf(task));
    const isTrained = trainedAt(run, task), trained = frames.map((at, index) => isTrained(at) ? returns[index] : null);
    return [
      { label: task, colour, dash, width: 1.2, points: frames.length < FEW_POINTS, frames, values: returns, given },
      { label: null, colour, dash: [], width: 3.5, frames, values: trained, spanGaps: false },
    ];
  });
}

/* Tells whether a task was in training at a frame. */
function trainedAt(run, task) {
  const spans = run.segments.filter((segment) => segment.tasks.includes(task) && segment.start_frames !== null);
  return (frames) => spans.some((span) => frames >= span.start_frames && frames <= (span.end_frames ?? Infinity));
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

/* Only environments that tell of success have one. */
function drawSuccess(chart, run, tasks) {
  const told = tasks.filter((task) => run.evaluations[task]?.values.success_rate);
  chart.node.hidden = !told.length;
  if (told.length) chart.draw(withPoints(told.map((task) => curve(task, tasks.indexOf(task), run.evaluations[task].frames, run.evaluations[task].values.success_rate))));
}

function drawTrainCharts(panel, run, tasks, id) {
  const begun = run.segments.filter((segment) => segment.index && segment.start_frames !== null && segment.start_frames <= run.frames);
  const marks = begun.length > MOST_MARKS ? [] : begun.map((segment) => segment.start_frames);
  GROUPS.forEach(([, charts], place) => {
    for (const [title, choose, worth] of charts) {
      const lines = withPoints(choose(run, tasks).map(([name, label, isThere], index) => [name, curve(label, index, run.train.frames, run.train.values[name], isThere)])
        .filter(([name]) => run.train.values[name]).map(([, line]) => line));
      if (!lines.length || (worth && !lines.some((line) => worth(line.values)))) continue;
      if (!panel.charts.has(title)) addChart(panel, place, title, id);
      panel.charts.get(title).draw(lines, marks);
    }
  });
}

/* Between two values there is a line, unless the curve is not there in between: uPlot breaks it at null only. */
function curve(label, index, frames, values, isThere = () => true) {
  const drawn = values?.map((value, at) => value ?? (isThere(frames[at]) ? undefined : null));
  return { label, colour: colourOf(index), dash: dashOf(index), width: 1.5, spanGaps: false, frames, values: drawn };
}

/* A few values are drawn as points too: one alone makes no line. */
function withPoints(lines) {
  const points = lines.every((line) => line.values.filter((value) => (value ?? null) !== null).length < FEW_POINTS / 3);
  return lines.map((line) => ({ ...line, points }));
}

/* Diagnostics come later than the first row: a new chart takes its place among those that are there. */
function addChart(panel, place, title, id) {
  panel.charts.set(title, new Chart(title, { sync: id }));
  const ordered = GROUPS[place][1].map(([each]) => panel.charts.get(each)?.node).filter(Boolean);
  panel.groups[place].cards.prepend(...ordered);
}

/* ---- tables ---- */

function drawMatrix(node, run, tasks) {
  node.hidden = !run.switches.length;
  if (!run.switches.length) return;
  const title = "score of every task at the end of every visit (underlined: the task just trained)", table = matrixTable(run, tasks);
  replaceScrolled(node, ".scroll", cardHeader(title, saveButton(() => figure(title, tablePicture(table), []))),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, table));
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

function drawMemory(node, run) {
  const byTask = run.replay.by_task ?? null;
  node.hidden = !run.replay.held;
  const rows = byTask ? Object.entries(byTask).map(([task, entry]) => [task, shortNumber(entry.unrolls ?? entry), entry.median_age_frames === undefined ? "–" : shortNumber(entry.median_age_frames)]) : [];
  const table = rows.length ? [element("p", { class: "soft", text: `by task, counted at frame ${shortNumber(run.replay.by_task_frames)}` }), simpleTable(["task", "unrolls", "median age, frames"], rows)] : [];
  const damaged = run.replay.quarantined ? `, ${shortNumber(run.replay.quarantined)} damaged and left out` : "";
  node.replaceChildren(element("h3", { text: "in replay" }),
    element("p", { class: "soft", text: `${shortNumber(run.replay.held)} unrolls, ${shortNumber(run.replay.bytes)}B${damaged}` }), ...table);
}

function drawHealth(node, run) {
  const names = [...new Set([...Object.keys(run.health), ...Object.keys(run.seconds)])];
  const rows = names.map((name) => [name, run.health[name]?.state ?? "–", String(run.health[name]?.restarts ?? "–"), busyText(run.seconds[name])]);
  node.hidden = !rows.length;
  node.replaceChildren(element("h3", { text: run.status === "running" ? "processes" : "processes, when the run ended" }),
    simpleTable(["process", "state", "restarts", "busy with"], rows));
}

/* The two largest shares of a process's time. */
function busyText(seconds) {
  const parts = Object.entries(seconds ?? {}).filter(([part, spent]) => part !== "learner" && spent > 0); /* "learner" is the sum of others */
  const total = parts.reduce((sum, [, spent]) => sum + spent, 0);
  return parts.sort((one, other) => other[1] - one[1]).slice(0, 2).map(([part, spent]) => `${part} ${Math.round(100 * spent / total)}\u00a0%`).join(", ") || "–";
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
  const shown = run.video.endsWith(".gif") ? element("img", { src: source, alt: run.video }) : element("video", { src: source, controls: "", loop: "", muted: "", playsinline: "" });
  panel.video.replaceChildren(element("h3", { text: `last video: ${run.video}` }), shown);
}

function simpleTable(head, rows) {
  return element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { text })))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((text) => element("td", { text })))))));
}

/* ---- several runs side by side ---- */

function makeCompare() {
  const cards = element("div", { class: "cards tables" });
  return { node: element("article", { class: "run" }, element("h2", { text: "Side by side" }), cards), cards, charts: new Map() };
}

/* Names without the directories that all of them lie in. */
function ownParts(names) {
  const parts = names.map((name) => name.split("/")), least = Math.min(...parts.map((each) => each.length)) - 1;
  const differ = parts[0].findIndex((part, index) => index >= least || parts.some((each) => each[index] !== part));
  return parts.map((each) => each.slice(differ).join("/"));
}

/* A run has the colour of its place among those chosen, whatever tasks it has. */
function drawCompare() {
  if (!state.compare) return;
  const known = state.chosen.map((id, place) => [state.data.get(id), place]).filter(([run]) => run);
  if (!known.length) return;
  const names = new Map(ownParts(known.map(([run]) => run.name)).map((name, index) => [known[index][0].id, name]));
  const tasks = [...new Set(known.flatMap(([run]) => Object.keys(run.evaluations)))];
  for (const task of tasks) {
    if (!state.compare.charts.has(task)) {
      const chart = new Chart(`return on ${task}`, { sync: "side by side", height: 220 });
      state.compare.charts.set(task, chart);
      state.compare.cards.append(...tasks.map((each) => state.compare.charts.get(each)?.node).filter(Boolean));
    }
    state.compare.charts.get(task).draw(known.filter(([run]) => run.evaluations[task]).map(([run, place]) => ({
      label: names.get(run.id), colour: colourOf(place), dash: dashOf(place), width: 2, points: run.evaluations[task].frames.length < FEW_POINTS / 3,
      frames: run.evaluations[task].frames, values: run.evaluations[task].values.return ?? run.evaluations[task].frames.map(() => null),
    })));
  }
}
