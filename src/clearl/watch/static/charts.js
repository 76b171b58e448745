"use strict";
/* Drawing: curves by uPlot, the plan as a ribbon, the matrix as a table. Knows nothing of the server. */

const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#999933", "#7a6ad8", "#8a8f98"];
const DASHES = [[], [8, 4], [2, 3], [8, 3, 2, 3]];

const colourOf = (index) => PALETTE[index % PALETTE.length];
const dashOf = (index) => DASHES[Math.floor(index / PALETTE.length) % DASHES.length];
const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function element(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (key === "class") made.className = value;
    else if (key === "text") made.textContent = value;
    else if (key === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function shortNumber(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return (value / 1e9).toFixed(2) + "G";
  if (size >= 1e6) return (value / 1e6).toFixed(2) + "M";
  if (size >= 1e4) return (value / 1e3).toFixed(1) + "k";
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  if (size >= 1) return value.toFixed(2);
  return value === 0 ? "0" : value.toPrecision(2);
}

/* Labels of an axis, with as many digits as tell neighbours apart. */
function tickTexts(_, ticks, axis, space, step) {
  const largest = Math.max(...ticks.map(Math.abs));
  const [unit, sign] = largest >= 1e9 ? [1e9, "G"] : largest >= 1e6 ? [1e6, "M"] : largest >= 1e4 ? [1e3, "k"] : [1, ""];
  let digits = 0;
  while (digits < 6 && Math.abs(step / unit * 10 ** digits - Math.round(step / unit * 10 ** digits)) > 1e-6) digits++;
  return ticks.map((tick) => Math.abs(tick) < step / 2 ? "0" : step < 1e-6 ? tick.toPrecision(2) : (tick / unit).toFixed(digits) + sign);
}

/* One chart. `lines`: [{label, colour, dash, width, points, frames, values, given}], each with an x-axis of its own.
   A line whose label is null is left out of the legend; `given` are the values to tell where those drawn are scaled. */
class Chart {
  constructor(title, options = {}) {
    this.title = title;
    this.options = options;
    this.plot = element("div", { class: "plot" });
    this.legend = element("div", { class: "legend" });
    const save = element("button", { text: "save", title: "save this figure as PNG", on: { click: () => this.save() } });
    this.node = element("section", { class: options.wide ? "card wide" : "card" },
      element("header", {}, element("h3", { text: title }), ...(options.buttons ?? []), save), this.plot, this.legend);
    this.key = null;
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.plot);
  }

  get height() { return this.options.wide ? 260 : 150; }

  draw(lines) {
    this.lines = lines;
    const key = JSON.stringify([lines.map((line) => [line.label, line.colour, line.width, line.points]), cssColour("--ink")]);
    const data = uPlot.join(lines.length ? lines.map((line) => [line.frames, line.values]) : [[[], []]]);
    const zoom = this.zoom();
    if (this.uplot && key === this.key) {
      this.uplot.setData(data, !zoom);
      if (zoom) this.uplot.redraw();
    } else {
      this.uplot?.destroy();
      this.key = key;
      this.uplot = new uPlot(this.settings(lines), data, this.plot);
      if (zoom) this.uplot.setScale("x", zoom);
    }
    this.drawLegend();
  }

  /* The part of the x-axis that the reader has chosen, or null: new rows must not undo it. */
  zoom() {
    const frames = this.uplot?.data[0];
    if (!frames?.length) return null;
    const { min, max } = this.uplot.scales.x;
    return min > frames[0] || max < frames.at(-1) ? { min, max } : null;
  }

  /* The newest values, or those at the frame under the pointer. */
  drawLegend() {
    const index = this.uplot?.cursor.idx ?? null, frame = index === null ? null : this.uplot.data[0][index];
    const entries = this.lines.filter((line) => line.label !== null).map((line) => {
      const entry = element("span", { text: `${line.label} ${shortNumber(valueAt(line, frame))}`.trim() });
      entry.style.setProperty("--swatch", line.colour);
      return entry;
    });
    this.legend.replaceChildren(...entries, frame === null ? "" : element("em", { text: `at frame ${frame.toLocaleString("en")}` }));
  }

  settings(lines) {
    const axis = { stroke: cssColour("--soft"), grid: { stroke: cssColour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    return {
      width: Math.max(this.plot.clientWidth, 120), height: this.height, pxAlign: 0,
      scales: { x: { time: false } },
      legend: { show: false },
      cursor: { drag: { x: true, y: false } },
      hooks: { setCursor: [() => this.uplot && this.drawLegend()] },
      axes: [{ ...axis, size: 30, ...(this.options.wide ? { label: "frames", labelSize: 16, labelFont: "11px system-ui" } : {}), values: tickTexts }, { ...axis, size: 52, values: tickTexts }],
      series: [{}, ...lines.map((line) => ({
        label: line.label, stroke: line.colour, width: line.width, dash: line.dash,
        spanGaps: line.spanGaps ?? true, points: { show: line.points ?? false, size: 5, fill: line.colour },
      }))],
    };
  }

  resize() {
    if (this.uplot && this.plot.clientWidth) this.uplot.setSize({ width: this.plot.clientWidth, height: this.height });
  }

  /* The canvas with title and legend, on the page's own background. */
  save() {
    const source = this.uplot.ctx.canvas, ratio = devicePixelRatio || 1, top = 28 * ratio;
    const named = this.lines.filter((line) => line.label);
    const rows = Math.ceil(named.length / 3), bottom = (rows * 18 + 10) * ratio;
    const canvas = element("canvas", { width: source.width, height: source.height + top + bottom });
    const draw = canvas.getContext("2d");
    draw.fillStyle = cssColour("--paper");
    draw.fillRect(0, 0, canvas.width, canvas.height);
    draw.drawImage(source, 0, top);
    draw.fillStyle = cssColour("--ink");
    draw.font = `600 ${13 * ratio}px system-ui`;
    draw.fillText(this.title, 8 * ratio, 18 * ratio);
    draw.font = `${11 * ratio}px system-ui`;
    named.forEach((line, index) => {
      const x = 8 * ratio + (index % 3) * (canvas.width / 3), y = source.height + top + (Math.floor(index / 3) * 18 + 12) * ratio;
      draw.fillStyle = line.colour;
      draw.fillRect(x, y - 8 * ratio, 9 * ratio, 9 * ratio);
      draw.fillStyle = cssColour("--ink");
      draw.fillText(line.label, x + 14 * ratio, y);
    });
    canvas.toBlob((blob) => {
      const link = element("a", { href: URL.createObjectURL(blob), download: `${this.title.replace(/\W+/g, "-")}.png` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }
}

/* The last value of a line up to a frame, or of all. */
function valueAt(line, frame) {
  const values = line.given ?? line.values;
  for (let index = values.length - 1; index >= 0; index--) {
    if (values[index] !== null && (frame === null || line.frames[index] <= frame)) return values[index];
  }
  return null;
}

/* Black or white, whichever can be read on a colour. */
function inkOn(colour) {
  const [red, green, blue] = [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16) / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000000" : "#ffffff";
}

/* The plan from frame `begin` to `end`, each segment in its task's colour, with a line at "now". */
function drawRibbon(canvas, segments, tasks, now, begin, end) {
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth * ratio, height = canvas.clientHeight * ratio;
  if (!width) return;
  canvas.width = width;
  canvas.height = height;
  const draw = canvas.getContext("2d"), last = Math.max(end || 0, now || 0, begin + 1);
  const place = (frames) => ((frames - begin) / (last - begin)) * width;
  draw.fillStyle = cssColour("--back");
  draw.fillRect(0, 0, width, height);
  for (const segment of segments) {
    if (segment.start_frames === null) continue;
    const left = place(segment.start_frames), right = place(segment.end_frames ?? last);
    let top = 0;
    segment.tasks.forEach((task, place) => {
      const share = segment.weights ? segment.weights[place] : 1 / segment.tasks.length;
      draw.fillStyle = colourOf(tasks.indexOf(task));
      draw.globalAlpha = segment.start_frames <= now ? 1 : 0.35;
      draw.fillRect(left, top, Math.max(right - left - 1, 1), share * height);
      top += share * height;
    });
    draw.globalAlpha = 1;
    if (segment.tasks.length === 1 && right - left > 60 * ratio) {
      draw.fillStyle = segment.start_frames <= now ? inkOn(colourOf(tasks.indexOf(segment.tasks[0]))) : cssColour("--ink");
      draw.font = `600 ${11 * ratio}px system-ui`;
      draw.fillText(segment.tasks[0], left + 6 * ratio, height / 2 + 4 * ratio, right - left - 10 * ratio);
    }
  }
  drawNow(draw, place(now), width, height, ratio);
}

/* A line and the word, on the side where there is room for it. */
function drawNow(draw, at, width, height, ratio) {
  draw.fillStyle = cssColour("--ink");
  draw.fillRect(Math.min(Math.max(at - ratio, 0), width - 2 * ratio), 0, 2 * ratio, height);
  draw.font = `600 ${9 * ratio}px system-ui`;
  const word = draw.measureText("now").width + 6 * ratio, left = at + word > width ? at - word : at;
  draw.fillRect(left, 0, word, 12 * ratio);
  draw.fillStyle = cssColour("--paper");
  draw.fillText("now", left + 3 * ratio, 9 * ratio);
}

/* Score of every task at the end of every segment; shaded from the worst to the best that the task has had. */
function matrixTable(run, tasks) {
  const head = element("tr", {}, element("th", { text: "task" }), ...run.switches.map((entry) => {
    const segment = run.segments.find((each) => each.index === entry.segment);
    const name = segment && segment.tasks.length === 1 ? `after ${segment.tasks[0]}` : `after segment ${entry.segment + 1}`;
    return element("th", { text: name });
  }));
  const rows = tasks.map((task) => {
    const values = run.switches.map((entry) => entry.returns[task] ?? null);
    const known = (run.evaluations[task]?.values.return ?? []).concat(values).filter((value) => value !== null);
    const low = Math.min(...known), high = Math.max(...known);
    return element("tr", {}, element("th", { text: task }), ...values.map((value, column) => {
      const segment = run.segments.find((each) => each.index === run.switches[column].segment);
      const trained = segment?.tasks.includes(task);
      const cell = element("td", { class: trained ? "cell trained" : "cell", text: shortNumber(value) });
      if (value !== null && high > low) {
        const share = (value - low) / (high - low);
        cell.style.background = `color-mix(in srgb, ${colourOf(0)} ${Math.round(share * 75)}%, var(--paper))`;
      }
      return cell;
    }));
  });
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
}
