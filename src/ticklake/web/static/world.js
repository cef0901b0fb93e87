// The world on a canvas. A frame is one binary response; painter.js paints it in a worker.
import { RAMP, TYPES, nameOf, ownerColour } from "./colours.js";

const root = document.getElementById("world");
const { run } = root.dataset;
const prefix = document.body.dataset.prefix;
const [width, height, first, step] = ["width", "height", "first", "step"].map((name) => Number(root.dataset[name]));
let last = Number(root.dataset.last);
const by = (id) => document.getElementById(id);
const canvas = by("canvas"), time = by("time"), colour = by("colour"), play = by("play");
const api = `${prefix}/api/runs/${encodeURIComponent(run)}`;
const address = new URLSearchParams(location.search);

// The newest picture and its facts from the painter.
let frame = null, view = { scale: 1, x: 0, y: 0 }, marked = null, path = null;
const context = canvas.getContext("2d", { alpha: false });

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const onGrid = (tick) => first + Math.round((clamp(tick, first, last) - first) / step) * step;

function draw() {
  const { scale, x, y } = view, sharp = devicePixelRatio;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = "#05080a";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.setTransform(sharp, 0, 0, sharp, 0, 0);
  context.imageSmoothingEnabled = scale < 1;
  if (frame) context.drawImage(frame.picture, x, y, width * scale, height * scale);
  if (frame && frame.lacks & 1) drawUnknown(scale, x, y);
  if (frame && by("organisms").checked) drawOrganisms(scale, x, y);
  if (path) drawPath(scale, x, y);
  if (marked) {
    context.lineWidth = 2; context.strokeStyle = "#ffffff";
    context.strokeRect(x + marked[0] * scale - 1, y + marked[1] * scale - 1, Math.max(6, scale) + 2, Math.max(6, scale) + 2);
  }
}

// Not the colour of an empty world: this tick is unknown.
function drawUnknown(scale, x, y) {
  context.fillStyle = "#2b2230"; context.fillRect(x, y, width * scale, height * scale);
  context.fillStyle = "#ffffff"; context.font = "600 16px sans-serif"; context.textAlign = "center";
  context.fillText("This tick is not in the table", x + width * scale / 2, y + height * scale / 2);
}

function drawOrganisms(scale, left, top) {
  const radius = clamp(scale * 0.45, 1.8, 12);
  for (const dead of [1, 0]) {
    context.beginPath();
    for (let i = 0; i < frame.id.length; i++) if (frame.dead[i] === dead) {
      const x = left + (frame.x[i] + 0.5) * scale, y = top + (frame.y[i] + 0.5) * scale;
      context.moveTo(x + radius, y); context.arc(x, y, radius, 0, 7);
    }
    context.fillStyle = dead ? "#8b8b8b" : "#ffd166"; context.fill();
    context.lineWidth = 1.2; context.strokeStyle = "#151006"; context.stroke();
  }
}

function drawPath(scale, left, top) {
  context.beginPath();
  path.forEach(([, x, y], i) => {
    const far = i && (Math.abs(x - path[i - 1][1]) > width / 2 || Math.abs(y - path[i - 1][2]) > height / 2);
    context[i && !far ? "lineTo" : "moveTo"](left + (x + 0.5) * scale, top + (y + 0.5) * scale);
  });
  context.lineWidth = 2; context.strokeStyle = "#ffffff"; context.stroke();
}

function pairs(target, entries) {
  target.replaceChildren(...entries.flatMap(([name, value]) => {
    const term = document.createElement("dt"), text = document.createElement("dd");
    term.textContent = name;
    text.append(value instanceof Node ? value : String(value));
    return [term, text];
  }));
  return target;
}

function describe() {
  const living = frame.dead.reduce((sum, dead) => sum + 1 - dead, 0);
  const said = (count, flag) => frame.lacks & flag ? "not in the table" : count.toLocaleString("en");
  pairs(by("facts"), [["occupied cells", said(frame.cells, 1)], ["living organisms", said(living, 2)],
    ["frame", `${(frame.bytes / 1024).toFixed(1)} KiB`]]);
  const entries = colour.value === "type"
    ? TYPES.flatMap(([name, shade], kind) => frame.present >> kind & 1 ? [[name, shade]] : [])
    : colour.value === "owner" ? [["no owner", ownerColour(0)], ["each owner its own colour", ownerColour(1)]] : [];
  const items = entries.map(([name, shade]) => swatch(name, shade));
  if (colour.value === "value" && frame.cells) items.push(ramp(frame.low, frame.high));
  if (!frame.cells) { const item = document.createElement("li"); item.textContent = frame.lacks & 1 ? "The cells of this tick are not in the table, so the world is unknown." : "No cell at this tick."; items.push(item); }
  by("legend").replaceChildren(...items);
}

function swatch(name, shade) {
  const item = document.createElement("li"), box = document.createElement("canvas"), pen = box.getContext("2d");
  box.width = box.height = 1; box.setAttribute("aria-hidden", "true");
  const dot = pen.createImageData(1, 1);
  new Uint32Array(dot.data.buffer)[0] = shade;
  pen.putImageData(dot, 0, 0);
  item.append(box, name);
  return item;
}

function ramp(low, high) {
  const item = document.createElement("li"), box = document.createElement("canvas"), pen = box.getContext("2d");
  box.className = "ramp"; box.setAttribute("aria-hidden", "true"); box.width = 256; box.height = 1;
  const line = pen.createImageData(256, 1);
  new Uint32Array(line.data.buffer).set(RAMP);
  pen.putImageData(line, 0, 0);
  item.append(box, `${low} to ${high}`);
  return item;
}

const painter = new Worker(new URL("painter.js", import.meta.url), { type: "module" });
function painted(buffer) {
  return new Promise((resolve, reject) => {
    painter.onmessage = ({ data }) => resolve(data);
    painter.onerror = (event) => reject(new Error(event.message || "the painter did not start"));
    painter.postMessage({ buffer, mode: colour.value, width, height }, buffer ? [buffer] : []);
  });
}
async function fetched(tick) {
  const answer = await fetch(`${api}/frame?tick=${tick}`);
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  return answer.arrayBuffer();
}

// While a frame is loading, only the newest further request is kept.
let wanted = null, loading = false;
async function show(tick) {
  wanted = onGrid(tick);
  time.value = wanted; by("tick").textContent = wanted.toLocaleString("en");
  if (loading) return;
  loading = true;
  try {
    while (wanted !== null) {
      const next = wanted;
      wanted = null;
      // Another colour of the same tick needs no new frame; an empty one may have been filled meanwhile.
      const known = frame?.tick === next && frame.cells;
      const newest = await painted(known ? null : await fetched(next));
      frame?.picture.close();
      frame = newest;
      describe();
      draw();
      root.dataset.shown = frame.tick;
      remember();
    }
  } catch (error) { stop(); tell("No picture", String(error.message)); } finally { loading = false; }
}

function remember() {
  address.set("run", run); address.set("tick", frame.tick); address.set("colour", colour.value);
  history.replaceState(null, "", `${location.pathname}?${address}`);
}

let playing = null;
function stop() { cancelAnimationFrame(playing); playing = null; play.textContent = "Play"; play.setAttribute("aria-pressed", "false"); }
function start() {
  if (Number(time.value) >= last) show(first);
  play.textContent = "Pause"; play.setAttribute("aria-pressed", "true");
  let before = performance.now();
  const go = async (now) => {
    if (!loading && now - before > 60) {
      before = now;
      if (Number(time.value) >= last) return stop();
      show(Number(time.value) + step);
    }
    playing = requestAnimationFrame(go);
  };
  playing = requestAnimationFrame(go);
}
const toggle = () => (playing === null ? start() : stop());

function resize() {
  canvas.width = canvas.clientWidth * devicePixelRatio; canvas.height = canvas.clientHeight * devicePixelRatio;
}
function fit() {
  const scale = Math.min(canvas.clientWidth / width, canvas.clientHeight / height);
  view = { scale, x: (canvas.clientWidth - width * scale) / 2, y: (canvas.clientHeight - height * scale) / 2 };
  draw();
}
function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const scale = clamp(view.scale * factor, 0.05, 80), by = scale / view.scale;
  view = { scale, x: x - (x - view.x) * by, y: y - (y - view.y) * by };
  draw();
}

function tell(title, ...content) {
  const heading = document.createElement("h2");
  heading.textContent = title;
  by("chosen").replaceChildren(heading, ...content.map((one) => {
    if (one instanceof Node) return one;
    const text = document.createElement("p");
    text.className = "quiet"; text.textContent = one;
    return text;
  }));
}

async function choose(x, y) {
  if (!frame || x < 0 || y < 0 || x >= width || y >= height) return;
  marked = [x, y]; path = null;
  const near = Math.max(0.7, 7 / view.scale);
  let best = -1, distance = near;
  if (by("organisms").checked) for (let i = 0; i < frame.id.length; i++) {
    const away = Math.hypot(frame.x[i] - x, frame.y[i] - y);
    if (away <= distance) { best = i; distance = away; }
  }
  draw();
  if (best >= 0) await showOrganism(frame.id[best]); else await showCell(x, y);
}

async function ask(address) {
  tell("Looking …");
  const answer = await fetch(address);
  const found = await answer.json();
  if (answer.ok) return found;
  tell("That did not work", found.error.message);
  return null;
}

async function showCell(x, y) {
  const found = await ask(`${api}/cells/${x * height + y}?tick=${frame.tick}`);
  if (!found) return;
  const rows = found.changes.reverse(), most = 200;
  const table = document.createElement("table");
  table.innerHTML = "<thead><tr><th>since tick<th>type<th class=n>value<th class=n>owner</tr></thead><tbody></tbody>";
  for (const row of rows.slice(0, most)) {
    const line = table.tBodies[0].insertRow();
    const what = row.state === "occupied" ? [nameOf(row.molecule_type), row.molecule_value, row.owner_id || "–"] : [row.state === "empty" ? "empty" : "not in the table", "", ""];
    [row.tick_number, ...what].forEach((value, i) => {
      const cell = line.insertCell();
      cell.textContent = value.toLocaleString("en"); if (i > 1) cell.className = "n";
    });
  }
  const past = document.createElement("div");
  past.className = "past"; past.tabIndex = 0; past.append(table);
  tell(`Cell ${x}, ${y}`, `Ticks ${found.from.toLocaleString("en")} to ${found.to.toLocaleString("en")}, changes only${rows.length > most ? `, the last ${most} of ${rows.length}` : ""}`, past);
}

async function showOrganism(id) {
  const found = await ask(`${api}/organisms/${id}?tick=${frame.tick}`);
  if (!found) return;
  path = found.path;
  if (path.length) marked = path[path.length - 1].slice(1, 3);
  const facts = document.createElement("dl");
  facts.className = "facts";
  const other = (who) => { const button = document.createElement("button"); button.textContent = who; button.onclick = () => showOrganism(who); return button; };
  const children = document.createElement("span");
  children.append(...found.children.flatMap((child) => [other(child), " "]), found.more_children ? `and ${found.more_children} more` : found.children.length ? "" : "none seen");
  const seen = found.last_seen === null ? "" : found.last_seen.toLocaleString("en"), then = seen === "" || found.last_seen === frame.tick ? "" : ` at tick ${seen}`;
  const states = { gone: `not there any more, last seen at tick ${seen}`, dead: then ? `dead, last seen at tick ${seen}` : "dead", absent: "not seen in these ticks", unknown: `not known: this tick is not in the table${seen && `, last seen at tick ${seen}`}` };
  pairs(facts, [["state", states[found.state] ?? found.state], [`energy${then}`, found.energy ?? "–"], [`age${then}`, found.age === null ? "–" : `${found.age.toLocaleString("en")} ticks`],
    ["born at tick", found.birth_tick?.toLocaleString("en") ?? "–"], ["program", found.program_id ?? "–"],
    ["parent", found.parent_id === null ? "none" : other(found.parent_id)], ["children", children]]);
  tell(`Organism ${id}`, facts, energyLine(found), `Ticks ${found.from.toLocaleString("en")} to ${found.to.toLocaleString("en")}; its path is drawn in the world.`);
  draw();
}

function energyLine(found) {
  const names = "http://www.w3.org/2000/svg", svg = document.createElementNS(names, "svg"), line = document.createElementNS(names, "polyline");
  const top = Math.max(1, ...found.path.map((one) => one[3])), span = Math.max(1, found.path.length - 1);
  line.setAttribute("points", found.path.map(([, , , energy], i) => `${(i / span * 280).toFixed(1)},${(56 - energy / top * 52).toFixed(1)}`).join(" "));
  svg.setAttribute("viewBox", "0 0 280 60"); svg.setAttribute("class", "spark"); svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img"); svg.setAttribute("aria-label", "Energy over time");
  svg.append(line);
  return svg;
}

let grip = null;
canvas.addEventListener("pointerdown", (event) => { grip = { x: event.offsetX, y: event.offsetY, moved: false }; canvas.setPointerCapture(event.pointerId); });
canvas.addEventListener("pointermove", (event) => {
  if (!grip) return;
  const dx = event.offsetX - grip.x, dy = event.offsetY - grip.y;
  if (!grip.moved && Math.hypot(dx, dy) < 4) return;
  grip = { x: event.offsetX, y: event.offsetY, moved: true };
  view.x += dx; view.y += dy; draw();
});
canvas.addEventListener("pointerup", (event) => {
  if (grip && !grip.moved) choose(Math.floor((event.offsetX - view.x) / view.scale), Math.floor((event.offsetY - view.y) / view.scale));
  grip = null;
});
canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY); }, { passive: false });
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, button, a, dialog")) return;
  const acts = { ArrowLeft: () => show(Number(time.value) - step), ArrowRight: () => show(Number(time.value) + step), Home: () => show(first), End: () => show(last),
    " ": toggle, "+": () => zoom(1.4), "=": () => zoom(1.4), "-": () => zoom(1 / 1.4), "0": fit };
  if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
});
play.addEventListener("click", toggle);
time.addEventListener("input", () => show(Number(time.value)));
colour.addEventListener("change", () => show(Number(time.value)));
by("organisms").addEventListener("change", draw);
by("in").addEventListener("click", () => zoom(1.4));
by("out").addEventListener("click", () => zoom(1 / 1.4));
by("fit").addEventListener("click", fit);
addEventListener("resize", () => { resize(); fit(); });

// The slider grows with a run that is being indexed.
setInterval(async () => {
  const answer = await fetch(`${api}/ticks`).catch(() => null);
  if (answer?.ok) { last = Math.max(last, (await answer.json()).last); time.max = last; }
}, 5000);

if (["type", "value", "owner"].includes(address.get("colour"))) colour.value = address.get("colour");
resize(); fit();
show(address.has("tick") ? Number(address.get("tick")) || first : last);
