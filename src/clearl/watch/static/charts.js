"use strict";
/* Drawing: curves by uPlot, the plan as a ribbon, the matrix as a table. Knows nothing of the server. */

/* Okabe and Ito's colours and two more, told apart by the colour-blind; lighter ones of the same hues on a dark page. More
   tasks than colours differ by their dashes. */
const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#999933"];
const DARK_PALETTE = ["#4ba3e3", "#f07f45", "#2fbf92", "#e39bc4", "#f0b93a", "#98d6fa", "#cf6a98", "#e8e88c"];
const DASHES = [[], [8, 4], [2, 3], [8, 3, 2, 3]];

const palette = () => document.documentElement.dataset.theme === "dark" ? DARK_PALETTE : PALETTE;
const colourOf = (index) => palette()[index % PALETTE.length];
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

/* A flat line in the middle of its axis; uPlot would go on from 0 to 100. */
function valueRange(_, low, high) {
  if (low === null) return [0, 1];
  const pad = Math.abs(low) / 10 || 1;
  return low === high ? [low - pad, high + pad] : uPlot.rangeNum(low, high, 0.1, true);
}

/* One chart. `lines`: [{label, colour, dash, width, points, frames, values, given}], each with an x-axis of its own.
   A line whose label is null is left out of the legend; `given` are the values to tell where those drawn are scaled.
   Charts with the same `options.sync` show the values of the same frame. */
class Chart {
  constructor(title, options = {}) {
    this.title = title;
    this.options = options;
    this.marks = [];
    this.plot = element("div", { class: "plot" });
    this.legend = element("div", { class: "legend" });
    this.node = element("section", { class: options.wide ? "card wide" : "card" },
      cardHeader(title, ...(options.buttons ?? []), saveButton(() => this.picture())), this.plot, this.legend);
    this.key = null;
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.plot);
  }

  get height() { return this.options.height ?? (this.options.wide ? 260 : 140); }

  /* `marks`: frames with a faint line from top to bottom, such as the switches of tasks. */
  draw(lines, marks = []) {
    this.lines = lines;
    this.marks = marks;
    const key = JSON.stringify([lines.map((line) => [line.label, line.colour, line.dash, line.width, line.points]), cssColour("--ink")]);
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

  /* uPlot keeps every chart in listeners of the window until it is told that the chart has gone. */
  destroy() {
    this.observer.disconnect();
    this.uplot?.destroy();
    this.uplot = null;
  }

  /* The part of the x-axis that the reader has chosen, or null: new rows must not undo it. */
  zoom() {
    const frames = this.uplot?.data[0];
    if (!frames?.length) return null;
    const { min, max } = this.uplot.scales.x;
    return min > frames[0] || max < frames.at(-1) ? { min, max } : null;
  }

  get named() { return this.lines.filter((line) => line.label !== null); }

  /* The newest values, or those at the frame under the pointer. */
  drawLegend() {
    const index = this.uplot?.cursor.idx ?? null, frame = index === null ? null : this.uplot.data[0][index];
    const entries = this.named.map((line) => {
      const entry = element("span", { text: `${line.label} ${shortNumber(valueAt(line, frame))}`.trim() });
      entry.style.setProperty("--swatch", swatch(line.colour, line.dash));
      return entry;
    });
    this.legend.replaceChildren(...entries, frame === null ? "" : element("em", { text: `at frame ${frame.toLocaleString("en")}` }));
  }

  settings(lines) {
    const axis = { stroke: cssColour("--soft"), grid: { stroke: cssColour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const follows = (type) => type === "mousemove" || type === "mouseleave";
    return {
      width: Math.max(this.plot.clientWidth, 120), height: this.height, pxAlign: 0,
      scales: { x: { time: false }, y: { range: valueRange } },
      legend: { show: false },
      cursor: { drag: { x: true, y: false }, y: false, ...(this.options.sync ? { sync: { key: this.options.sync, filters: { pub: follows, sub: follows } } } : {}) },
      hooks: { setCursor: [() => this.uplot && this.drawLegend()], drawAxes: [(plot) => this.drawMarks(plot)] },
      axes: [{ ...axis, size: 30, ...(this.options.wide ? { label: "frames", labelSize: 16, labelFont: "11px system-ui" } : {}), values: tickTexts }, { ...axis, size: 52, values: tickTexts }],
      series: [{}, ...lines.map((line) => ({
        label: line.label, stroke: line.colour, width: line.width, dash: line.dash,
        spanGaps: line.spanGaps ?? true, points: { show: line.points ?? false, size: 5, fill: line.colour },
      }))],
    };
  }

  drawMarks(plot) {
    const { left, top, width, height } = plot.bbox, draw = plot.ctx;
    draw.save();
    draw.fillStyle = cssColour("--soft");
    draw.globalAlpha = 0.35;
    for (const frame of this.marks) {
      const at = plot.valToPos(frame, "x", true);
      if (at > left && at < left + width) draw.fillRect(Math.round(at), top, Math.max(1, Math.round(devicePixelRatio || 1)), height);
    }
    draw.restore();
  }

  resize() {
    if (this.uplot && this.plot.clientWidth) this.uplot.setSize({ width: this.plot.clientWidth, height: this.height });
  }

  picture() { return figure(this.title, this.uplot.ctx.canvas, this.named); }
}

function cardHeader(title, ...buttons) {
  return element("header", {}, element("h3", { text: title }), ...buttons);
}

/* ---- legends and saved figures ---- */

/* The look of a line, as a background that repeats its dashes. */
function swatch(colour, dash) {
  if (!dash.length) return colour;
  let at = 0;
  const stops = dash.map((length, index) => `${index % 2 ? "transparent" : colour} ${at}px ${at += length}px`);
  return `repeating-linear-gradient(90deg, ${stops.join(", ")})`;
}

/* A button that saves the canvas that `picture` returns. */
function saveButton(picture) {
  return element("button", { text: "save", title: "save this figure as PNG", on: { click: () => {
    const { canvas, title } = picture();
    canvas.toBlob((blob) => {
      const link = element("a", { href: URL.createObjectURL(blob), download: `${title.replace(/\W+/g, "-")}.png` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  } } });
}

/* A drawing with its title above and its legend below, on the page's own background. `entries`: [{label, colour, dash}]. */
function figure(title, source, entries) {
  const ratio = devicePixelRatio || 1, canvas = element("canvas"), draw = canvas.getContext("2d");
  const size = (pixels) => pixels * ratio, small = `${size(11)}px system-ui`;
  draw.font = small;
  const widest = Math.max(0, ...entries.map((entry) => draw.measureText(entry.label).width)) + size(44);
  const columns = Math.max(1, Math.floor(source.width / widest)), top = size(28);
  canvas.width = Math.max(source.width, entries.length ? widest : 0);
  canvas.height = source.height + top + size(Math.ceil(entries.length / columns) * 18 + 10);
  draw.fillStyle = cssColour("--paper");
  draw.fillRect(0, 0, canvas.width, canvas.height);
  draw.drawImage(source, 0, top);
  draw.fillStyle = cssColour("--ink");
  draw.font = `600 ${size(13)}px system-ui`;
  draw.fillText(title, size(8), size(18));
  draw.font = small;
  draw.lineWidth = size(3);
  entries.forEach((entry, index) => {
    const x = size(8) + (index % columns) * widest, y = source.height + top + size(Math.floor(index / columns) * 18 + 12);
    draw.strokeStyle = entry.colour;
    draw.setLineDash(entry.dash.map(size));
    draw.beginPath();
    draw.moveTo(x, y - size(4));
    draw.lineTo(x + size(22), y - size(4));
    draw.stroke();
    draw.fillText(entry.label, x + size(28), y);
  });
  return { canvas, title };
}

/* A table as it stands on the page, cell by cell. */
function tablePicture(table) {
  const ratio = devicePixelRatio || 1, canvas = element("canvas"), draw = canvas.getContext("2d");
  const scrolled = table.parentElement.scrollLeft;
  table.parentElement.scrollLeft = 0; /* the first column stands still while the others are scrolled */
  const box = table.getBoundingClientRect();
  canvas.width = Math.ceil(box.width * ratio);
  canvas.height = Math.ceil(box.height * ratio);
  draw.scale(ratio, ratio);
  for (const cell of table.querySelectorAll("th, td")) {
    const at = cell.getBoundingClientRect(), style = getComputedStyle(cell), lines = cell.innerText.split("\n");
    const isLeft = style.textAlign === "left", x = (isLeft ? at.left + 8 : at.right - 8) - box.left;
    draw.fillStyle = style.backgroundColor;
    draw.fillRect(at.left - box.left, at.top - box.top, at.width - 1, at.height - 1);
    draw.fillStyle = style.color;
    draw.font = `${style.fontWeight} ${style.fontSize} system-ui`;
    draw.textAlign = isLeft ? "left" : "right";
    lines.forEach((line, number) => draw.fillText(line, x, at.bottom - box.top - 7 - 15 * (lines.length - 1 - number)));
    if (cell.matches(".trained")) draw.fillRect(x - draw.measureText(lines[0]).width, at.bottom - box.top - 5, draw.measureText(lines[0]).width, 1);
  }
  table.parentElement.scrollLeft = scrolled;
  return canvas;
}

/* The last value of a line up to a frame, or of all. */
function valueAt(line, frame) {
  const values = line.given ?? line.values;
  for (let index = values.length - 1; index >= 0; index--) {
    if ((values[index] ?? null) !== null && (frame === null || line.frames[index] <= frame)) return values[index];
  }
  return null;
}

/* Black or white, whichever can be read on a colour. */
function inkOn(colour) {
  const [red, green, blue] = [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16) / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000000" : "#ffffff";
}

/* The plan from frame `begin` to `end`, each segment in its tasks' colours, with a line at "now". */
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
    const left = place(segment.start_frames), right = Math.max(place(segment.end_frames ?? last) - 1, left + 1);
    drawMixture(draw, segment, tasks, left, right, height, segment.start_frames <= now ? 1 : 0.35);
    if (segment.tasks.length === 1 && right - left > 60 * ratio) {
      draw.fillStyle = segment.start_frames <= now ? inkOn(colourOf(tasks.indexOf(segment.tasks[0]))) : cssColour("--ink");
      draw.font = `600 ${11 * ratio}px system-ui`;
      draw.fillText(segment.tasks[0], left + 6 * ratio, height / 2 + 4 * ratio, right - left - 10 * ratio);
    }
  }
  canvas.segmentAt = (share) => segments.findLast((segment) => segment.start_frames !== null && place(segment.start_frames) <= share * width);
  drawNow(draw, place(now), width, height, ratio);
}

/* The shares of a segment's tasks, one above the other; a mixture that moves has slanted bounds. */
function drawMixture(draw, segment, tasks, left, right, height, alpha) {
  const weights = segment.weights ?? segment.tasks.map(() => 1 / segment.tasks.length), ends = segment.end_weights ?? weights;
  let top = 0, endTop = 0;
  draw.globalAlpha = alpha;
  segment.tasks.forEach((task, index) => {
    const bottom = top + weights[index] * height, endBottom = endTop + ends[index] * height;
    draw.fillStyle = colourOf(tasks.indexOf(task));
    draw.beginPath();
    [[left, top], [right, endTop], [right, endBottom], [left, bottom]].forEach(([x, y]) => draw.lineTo(x, y));
    draw.fill();
    [top, endTop] = [bottom, endBottom];
  });
  draw.globalAlpha = 1;
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
    const name = segment && segment.tasks.length === 1 ? segment.tasks[0] : `segment ${entry.segment + 1}`;
    return element("th", {}, "after", element("br"), name);
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
