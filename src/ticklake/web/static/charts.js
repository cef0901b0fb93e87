// Charts on canvases. The server sends buckets with mean, minimum and maximum. All panels share range and cursor.
const by = (id) => document.getElementById(id);
const root = by("charts"), { run } = root.dataset;
const api = `${document.body.dataset.prefix}/api/runs/${encodeURIComponent(run)}`;
const address = new URLSearchParams(location.search);
const PAD = { left: 58, right: 14, top: 12, bottom: 26 };
const COLOURS = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6"];
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
// For axes, legends and counts. Tables show exact values.
const rounded = (value) => value === null || value === undefined ? "–" : value.toLocaleString("en", Math.abs(value) < 1 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: Math.abs(value) < 100 ? 2 : 0 });
const listedValue = (value) => value === null || value === undefined ? "–" : String(value);
const plural = (count, noun) => `${rounded(count)} ${noun}${count === 1 ? "" : "s"}`;
const label = (name) => name.replaceAll("_", " ");

function brief(value) {
  for (const [power, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= power * (unit === "k" ? 10 : 1)) return `${+(value / power).toFixed(1)} ${unit}`;
  }
  return rounded(value);
}

// Round steps of 1, 2 or 5 times a power of ten.
function steps(low, high, count) {
  const rough = (high - low || 1) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough), found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(+at.toPrecision(12));
  return found;
}

class Chart {
  constructor(panel, title) {
    this.canvas = panel.querySelector("canvas");
    this.readout = panel.querySelector(".readout");
    this.table = panel.querySelector(".past");
    this.title = title;
    this.first = Number(panel.dataset.colour ?? 0);
    this.data = null; this.cursor = null; this.drag = null;
    this.onrange = null; this.oncursor = null;
    this.listen(panel);
  }

  // x: numbers, or texts (then bars); lines: {name, mean, low?, high?}.
  show(data) {
    this.data = data; this.cursor = null;
    const values = data.lines.flatMap((line) => [...(line.low ?? line.mean), ...(line.high ?? line.mean)]).filter((one) => one !== null);
    let low = 0, high = 1;
    if (values.length) {
      low = values.reduce((a, b) => Math.min(a, b)); high = values.reduce((a, b) => Math.max(a, b));
      // Start at zero, unless that would flatten the curve.
      if (low > 0 && (data.bars || low < (high - low) * 2)) low = 0;
      const spread = high - low || Math.abs(high) || 1;
      high += spread * 0.06; if (low !== 0) low -= spread * 0.06;
    }
    this.low = low; this.high = high;
    this.from = data.bars ? -0.5 : data.from ?? Math.min(...data.x);
    this.to = data.bars ? data.x.length - 0.5 : data.to ?? Math.max(...data.x);
    if (this.from === this.to) { this.from -= 1; this.to += 1; }
    this.canvas.setAttribute("aria-label", `${this.title}: ${data.lines.map((line) => `${label(line.name)} ${summary(line)}`).join("; ") || "nothing"}`);
    this.tell(); this.draw(); this.fill();
  }

  place(x) { return PAD.left + (x - this.from) / (this.to - this.from) * (this.width - PAD.left - PAD.right); }
  value(pixel) { return this.from + (pixel - PAD.left) / (this.width - PAD.left - PAD.right) * (this.to - this.from); }
  level(y) { return this.height - PAD.bottom - (y - this.low) / (this.high - this.low) * (this.height - PAD.top - PAD.bottom); }
  at(index) { return this.data.bars ? index : this.data.x[index]; }

  ink(colour, line) { return colour(COLOURS[(this.first + line) % 6]); }

  nearest(x) {
    const count = this.data.x.length;
    if (this.data.bars) return clamp(Math.round(x), 0, count - 1);
    let best = 0;
    for (let i = 1; i < count; i++) if (Math.abs(this.data.x[i] - x) < Math.abs(this.data.x[best] - x)) best = i;
    return best;
  }

  draw(target = this.canvas, sharp = devicePixelRatio, extra = 0) {
    if (!this.data || !this.canvas.clientWidth) return;
    this.width = this.canvas.clientWidth; this.height = this.canvas.clientHeight;
    target.width = this.width * sharp; target.height = (this.height + extra) * sharp;
    const pen = target.getContext("2d"), style = getComputedStyle(this.canvas), colour = (name) => style.getPropertyValue(name).trim();
    pen.scale(sharp, sharp);
    pen.font = `11px ${style.fontFamily}`;
    if (extra) {
      pen.fillStyle = colour("--card"); pen.fillRect(0, 0, this.width, this.height + extra);
      pen.fillStyle = colour("--ink"); pen.font = `600 14px ${style.fontFamily}`; pen.fillText(this.title, 14, 20);
      pen.font = `11px ${style.fontFamily}`; pen.fillStyle = colour("--quiet"); pen.textAlign = "right"; pen.fillText(run, this.width - 14, 20); pen.textAlign = "left";
      pen.translate(0, extra);
    }
    this.axes(pen, colour);
    pen.save();
    pen.beginPath(); pen.rect(PAD.left, 0, this.width - PAD.left - PAD.right, this.height - PAD.bottom + 1); pen.clip();
    this.data.lines.forEach((line, i) => this.data.bars ? this.bars(pen, line, this.ink(colour, i), i) : this.line(pen, line, this.ink(colour, i)));
    pen.restore();
    if (target === this.canvas) this.overlay(pen, colour);
    if (!this.data.x.length || this.data.lines.every((line) => line.mean.every((one) => one === null))) {
      pen.fillStyle = colour("--quiet"); pen.textAlign = "center"; pen.fillText("nothing in this range", this.width / 2, this.height / 2);
    }
  }

  axes(pen, colour) {
    pen.strokeStyle = colour("--line"); pen.fillStyle = colour("--quiet"); pen.lineWidth = 1;
    pen.textAlign = "right"; pen.textBaseline = "middle";
    for (const y of steps(this.low, this.high, 4)) {
      const pixel = Math.round(this.level(y)) + 0.5;
      pen.beginPath(); pen.moveTo(PAD.left, pixel); pen.lineTo(this.width - PAD.right, pixel); pen.stroke();
      pen.fillText(brief(y), PAD.left - 8, pixel);
    }
    pen.textBaseline = "top";
    if (this.data.bars) {
      const room = Math.max(1, Math.ceil(this.data.x.length / Math.max(1, (this.width - 80) / 90)));
      pen.textAlign = "center";
      this.data.x.forEach((text, i) => { if (i % room === 0) pen.fillText(String(text ?? "–").slice(0, 14), this.place(i), this.height - PAD.bottom + 8); });
    } else {
      for (const x of steps(this.from, this.to, Math.max(2, Math.floor(this.width / 130)))) {
        const pixel = this.place(x);
        pen.textAlign = pixel > this.width - 40 ? "right" : "center";
        pen.fillText(x.toLocaleString("en", { maximumFractionDigits: 12 }), Math.min(pixel, this.width - 4), this.height - PAD.bottom + 8);
      }
    }
    pen.textAlign = "left"; pen.textBaseline = "alphabetic";
  }

  line(pen, line, colour) {
    const { x } = this.data;
    if (line.low) {
      pen.fillStyle = colour; pen.globalAlpha = 0.18;
      for (const [start, end] of spans(line.mean)) {
        pen.beginPath();
        for (let i = start; i < end; i++) pen.lineTo(this.place(x[i]), this.level(line.high[i]));
        for (let i = end - 1; i >= start; i--) pen.lineTo(this.place(x[i]), this.level(line.low[i]));
        pen.fill();
      }
      pen.globalAlpha = 1;
    }
    pen.strokeStyle = pen.fillStyle = colour; pen.lineWidth = 1.8; pen.lineJoin = "round";
    for (const [start, end] of spans(line.mean)) {
      if (this.data.lines.length === 1) this.shade(pen, line, start, end, colour);
      pen.beginPath();
      for (let i = start; i < end; i++) pen.lineTo(this.place(x[i]), this.level(line.mean[i]));
      pen.stroke();
      if (end - start === 1) { pen.beginPath(); pen.arc(this.place(x[start]), this.level(line.mean[start]), 2.5, 0, 7); pen.fill(); }
    }
  }

  // Fill the area below a single line.
  shade(pen, line, start, end, colour) {
    const { x } = this.data, ground = this.height - PAD.bottom, fade = pen.createLinearGradient(0, PAD.top, 0, ground);
    fade.addColorStop(0, `${colour}50`); fade.addColorStop(1, `${colour}05`);
    pen.fillStyle = fade;
    pen.beginPath(); pen.moveTo(this.place(x[start]), ground);
    for (let i = start; i < end; i++) pen.lineTo(this.place(x[i]), this.level(line.mean[i]));
    pen.lineTo(this.place(x[end - 1]), ground); pen.fill();
    pen.fillStyle = colour;
  }

  bars(pen, line, colour, which) {
    const all = (this.place(1) - this.place(0)) * 0.76, wide = Math.max(1, all / this.data.lines.length);
    pen.fillStyle = colour;
    line.mean.forEach((value, i) => {
      if (value !== null) pen.fillRect(this.place(i) - all / 2 + which * wide, Math.min(this.level(value), this.level(0)), Math.max(1, wide - 1), Math.abs(this.level(0) - this.level(value)));
    });
  }

  overlay(pen, colour) {
    if (this.drag && Math.abs(this.drag.to - this.drag.from) > 3) {
      pen.fillStyle = colour("--accent"); pen.globalAlpha = 0.16;
      pen.fillRect(Math.min(this.drag.from, this.drag.to), PAD.top, Math.abs(this.drag.to - this.drag.from), this.height - PAD.top - PAD.bottom);
      pen.globalAlpha = 1;
    }
    if (this.cursor === null || this.cursor >= this.data.x.length) return;
    const x = this.place(this.at(this.cursor));
    pen.strokeStyle = colour("--quiet"); pen.setLineDash([3, 3]);
    pen.beginPath(); pen.moveTo(x, PAD.top); pen.lineTo(x, this.height - PAD.bottom); pen.stroke();
    pen.setLineDash([]);
    this.data.lines.forEach((line, i) => {
      if (line.mean[this.cursor] === null || this.data.bars) return;
      pen.fillStyle = this.ink(colour, i); pen.strokeStyle = colour("--card"); pen.lineWidth = 2;
      pen.beginPath(); pen.arc(x, this.level(line.mean[this.cursor]), 4, 0, 7); pen.fill(); pen.stroke();
    });
  }

  // The legend; with a cursor, also the values there.
  tell() {
    const { x, until, lines, bars } = this.data, at = this.cursor;
    const items = lines.map((line, i) => {
      const item = document.createElement("span"), text = document.createElement("span");
      item.className = `key key-${(this.first + i) % 6 + 1}`;
      let said = label(line.name);
      if (at !== null) said += ` ${rounded(line.mean[at])}`;
      if (at !== null && line.low && line.low[at] !== line.high[at]) said += ` (${rounded(line.low[at])} to ${rounded(line.high[at])})`;
      text.textContent = said; item.append(text);
      return item;
    });
    if (at !== null) {
      const where = document.createElement("strong");
      where.textContent = bars ? x[at] : `${this.data.unit ?? ""} ${rounded(until ? this.data.since[at] : x[at])}${until && until[at] !== this.data.since[at] ? `–${rounded(until[at])}` : ""}`.trim();
      items.unshift(where);
    }
    this.readout.replaceChildren(...items);
  }

  // `columns` are all results, including those that cannot be drawn.
  fill() {
    if (this.data.columns) { this.table.replaceChildren(listed(this.data.columns)); return; }
    const { x, since, until, lines } = this.data, table = document.createElement("table");
    const heads = [...(since ? ["from", "to"] : [label(this.data.unit ?? "")]), ...lines.flatMap((line) => line.low ? [`${label(line.name)}, mean`, "least", "most"] : [label(line.name)])];
    const head = table.createTHead().insertRow();
    for (const text of heads) { const cell = document.createElement("th"); cell.scope = "col"; cell.className = "n"; cell.textContent = text; head.append(cell); }
    const body = table.createTBody();
    x.slice(0, 1000).forEach((at, i) => {
      const row = body.insertRow();
      const first = since ? [since[i], until[i]] : [at];
      for (const value of [...first, ...lines.flatMap((line) => line.low ? [line.mean[i], line.low[i], line.high[i]] : [line.mean[i]])]) {
        const cell = row.insertCell();
        cell.className = "n"; cell.textContent = listedValue(value);
      }
    });
    this.table.replaceChildren(table);
  }

  point(index) {
    this.cursor = index; this.tell(); this.draw();
  }

  listen(panel) {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => { if (event.button || !this.data) return; this.drag = { from: event.offsetX, to: event.offsetX }; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.data?.x.length) return;
      if (this.drag) this.drag.to = clamp(event.offsetX, PAD.left, this.width - PAD.right);
      this.move(this.nearest(this.value(event.offsetX)));
    });
    canvas.addEventListener("pointerup", () => {
      const drag = this.drag; this.drag = null;
      if (drag && Math.abs(drag.to - drag.from) > 6) this.onrange?.(this.value(Math.min(drag.from, drag.to)), this.value(Math.max(drag.from, drag.to)));
      else this.draw();
    });
    canvas.addEventListener("pointercancel", () => { this.drag = null; this.draw(); });
    canvas.addEventListener("pointerleave", () => { if (this.data && !this.drag) this.move(null); });
    canvas.addEventListener("dblclick", () => this.onrange?.(-Infinity, Infinity));
    canvas.addEventListener("keydown", (event) => this.key(event));
    panel.querySelector(".png").addEventListener("click", () => this.save());
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  move(index) { if (this.oncursor) this.oncursor(index); else this.point(index); }

  key(event) {
    if (!this.data?.x.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const last = this.data.x.length - 1, now = this.cursor ?? -1, span = this.to - this.from;
    const middle = this.cursor === null ? (this.from + this.to) / 2 : this.at(this.cursor);
    const acts = {
      ArrowRight: () => this.move(clamp(now + (event.shiftKey ? 10 : 1), 0, last)), ArrowLeft: () => this.move(clamp(this.cursor === null ? last : now - (event.shiftKey ? 10 : 1), 0, last)),
      Home: () => this.move(0), End: () => this.move(last), Escape: () => this.move(null),
      "+": () => this.onrange?.(middle - span / 4, middle + span / 4), "=": () => this.onrange?.(middle - span / 4, middle + span / 4),
      "-": () => this.onrange?.(middle - span, middle + span), "0": () => this.onrange?.(-Infinity, Infinity),
    };
    if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
  }

  save() {
    if (!this.data) return;
    const picture = document.createElement("canvas");
    this.draw(picture, 2, 30);
    picture.toBlob((blob) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob); link.download = `${this.title.toLowerCase().replaceAll(" ", "-")}.png`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }
}

const ROWS = 1000;
function listed(columns) {
  const table = document.createElement("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  for (const { name, number } of columns) { const cell = document.createElement("th"); cell.scope = "col"; if (number) cell.className = "n"; cell.textContent = name; head.append(cell); }
  (columns[0]?.values ?? []).slice(0, ROWS).forEach((_, i) => {
    const row = body.insertRow();
    for (const { values, number } of columns) { const cell = row.insertCell(); if (number) cell.className = "n"; cell.textContent = listedValue(values[i]); }
  });
  return table;
}

// Ranges without holes.
function spans(values) {
  const found = [];
  let start = -1;
  values.forEach((value, i) => {
    if (value !== null && start < 0) start = i;
    if (value === null && start >= 0) { found.push([start, i]); start = -1; }
  });
  if (start >= 0) found.push([start, values.length]);
  return found;
}

function summary(line) {
  const known = line.mean.filter((one) => one !== null);
  if (!known.length) return "has no values here";
  return `from ${rounded(known.reduce((a, b) => Math.min(a, b)))} to ${rounded(known.reduce((a, b) => Math.max(a, b)))}, last ${rounded(known[known.length - 1])}`;
}

async function ask(url) {
  const answer = await fetch(url);
  const found = await answer.json();
  if (!answer.ok) throw new Error(answer.status === 429 ? "The server is busy with other queries; try again in a moment." : found.error.message);
  return found;
}

const panels = [...root.querySelectorAll(".panel")].map((panel) => {
  const chart = new Chart(panel, panel.querySelector("h2").firstChild.textContent.trim());
  return { chart, panel, names: panel.dataset.names.split(" ") };
});
let first = Number(root.dataset.first), last = Number(root.dataset.last);
let from = Number(root.dataset.from), to = Number(root.dataset.to), step = Number(root.dataset.step);

// While a request is active, only the newest further request is kept.
let wanted = null, loading = false;
async function load() {
  wanted = [from, to];
  if (loading) return;
  loading = true; root.classList.add("loading");
  try {
    while (wanted) {
      const [start, end] = wanted;
      wanted = null;
      const found = await ask(`${api}/series?from=${start}&to=${end}`);
      if (!wanted) spread(found);
    }
    by("how").className = "";
  } catch (error) {
    // The charts still show the previous range.
    wanted = null; [from, to] = root.dataset.shown ? root.dataset.shown.split("-").map(Number) : [first, last];
    by("how").textContent = error.message; by("how").className = "wrong";
  } finally { loading = false; root.classList.remove("loading"); }
}

function spread(found) {
  first = found.first; last = found.last; from = found.from; to = found.to; step = found.step;
  const column = Object.fromEntries(found.columns.map((one) => [one.name, one.values]));
  const since = column.from_tick, until = column.to_tick, x = since.map((start, i) => (start + until[i]) / 2);
  for (const { chart, panel, names } of panels) {
    const lines = names.filter((name) => column[`${name}_mean`]).map((name) => ({ name, mean: column[`${name}_mean`], low: column[`${name}_min`], high: column[`${name}_max`] }));
    panel.hidden = !lines.length;
    if (lines.length) chart.show({ x, since, until, from, to, lines, unit: since.every((start, i) => start === until[i]) ? "tick" : "ticks" });
  }
  const form = by("range");
  form.elements.from.value = from; form.elements.to.value = to;
  by("extent").textContent = `ticks ${rounded(from)}${to === from ? "" : `–${rounded(to)}`}`;
  const missing = ["organism_data", "environment_data"].filter((table) => column[`${table}_ticks`]?.some((count, i) => found.exact ? count < column.ticks[i] : !count));
  const lacks = missing.length ? [`some ticks of this range are not in ${missing.join(" and ")}; figures cover the others`] : [];
  const read = found.exact ? `every ${step > 1 ? "sampled " : ""}tick was read` : "too many rows to read all: each point is the mean of some ticks of its range";
  by("how").textContent = [...(found.exact && missing.length ? [] : [read]), ...lacks].join("; ");
  for (const form of ["csv", "parquet"]) by(form).href = `${api}/series?from=${from}&to=${to}&format=${form}`;
  remember("from", from === first ? "" : from, "to", to === last ? "" : to);
  root.dataset.shown = `${from}-${to}`;
}

function remember(...pairs) {
  address.set("run", run);
  for (let i = 0; i < pairs.length; i += 2) if (pairs[i + 1] === "") address.delete(pairs[i]); else address.set(pairs[i], pairs[i + 1]);
  history.replaceState(null, "", `${location.pathname}?${address}`);
}

// The nearest sampled tick: there are no figures in between.
const sampled = (tick) => { const at = first + Math.round((clamp(tick, first, last) - first) / step) * step; return at > last ? at - step : at; };
function range(start, end) {
  start = sampled(start); end = sampled(end);
  // Zooming has a minimum width; a typed range has none.
  if (end - start < 2 * step) { const middle = sampled((start + end) / 2); start = sampled(middle - step); end = sampled(middle + step); }
  from = start; to = end;
  load();
}
for (const { chart } of panels) {
  chart.onrange = range;
  chart.oncursor = (index) => { for (const one of panels) if (one.chart.data) one.chart.point(index); };
}
const span = () => to - from;
by("in").addEventListener("click", () => range(from + span() / 4, to - span() / 4));
by("out").addEventListener("click", () => range(from - span() / 2, to + span() / 2));
by("whole").addEventListener("click", () => range(-Infinity, Infinity));
by("earlier").addEventListener("click", () => { const far = Math.min(span() / 2, from - first); range(from - far, to - far); });
by("later").addEventListener("click", () => { const far = Math.min(span() / 2, last - to); range(from + far, to + far); });
by("range").addEventListener("submit", (event) => {
  event.preventDefault();
  const { from: start, to: end } = event.target.elements;
  [from, to] = [Number(start.value.replace(/\D/g, "") || first), Number(end.value.replace(/\D/g, "") || last)].sort((a, b) => a - b);
  load();
});

const BARS = 200, LINES = 6;
const own = new Chart(by("own"), "Your own query");
async function answer() {
  const sql = by("sql").value.trim(), wrong = by("wrong");
  wrong.hidden = true; by("answer").hidden = by("taken").hidden = true; by("own").querySelector(".png").hidden = true;
  remember("sql", sql);
  if (!sql) return;
  const url = `${api}/query?sql=${encodeURIComponent(sql)}`;
  by("own").classList.add("loading");
  try {
    const found = await ask(url), [head, ...rest] = found.columns, lines = rest.filter((one) => one.number).slice(0, LINES);
    by("answer").hidden = by("taken").hidden = false;
    for (const form of ["csv", "parquet"]) by(`query-${form}`).href = `${url}&format=${form}`;
    // A single column is drawn over its row numbers.
    const x = lines.length ? head.values : head.values.map((_, i) => i + 1), bars = lines.length > 0 && !head.number;
    const drawn = lines.length ? lines : [head].filter((one) => one.number), rows = head.values.length;
    own.canvas.hidden = own.readout.hidden = by("own").querySelector(".png").hidden = !drawn.length;
    by("own").querySelector("details").open ||= !drawn.length;
    own.show({ x: bars ? x.slice(0, BARS) : x, bars, columns: found.columns, unit: lines.length ? head.name : "row", lines: drawn.map((one) => ({ name: one.name, mean: bars ? one.values.slice(0, BARS) : one.values })) });
    const limits = [found.more && `only the first ${plural(rows, "row")} of more`, rows > ROWS && `the table shows the first ${rounded(ROWS)}`,
      drawn.length && bars && rows > BARS && `the chart the first ${BARS}`, rest.filter((one) => one.number).length > LINES && `the chart the first ${LINES} columns`, !drawn.length && "no column with numbers to draw"];
    by("found").textContent = [plural(rows, "row"), ...limits.filter(Boolean)].join("; ");
    for (const form of ["csv", "parquet"]) by(`query-${form}`).textContent = form.replace("csv", "CSV").replace("parquet", "Parquet") + (found.more ? `, first ${plural(rows, "row")}` : "");
    by("own").dataset.shown = sql;
  } catch (error) { wrong.textContent = error.message; wrong.hidden = false; } finally { by("own").classList.remove("loading"); }
}
by("ask").addEventListener("submit", (event) => { event.preventDefault(); answer(); });
by("sql").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); answer(); } });
by("example").addEventListener("click", (event) => { by("sql").value = event.target.dataset.sql; answer(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const { chart } of panels) chart.draw(); own.draw(); });

load();
if (by("sql").value.trim()) answer();
