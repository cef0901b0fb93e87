// Paints frames in a worker, so that the page stays responsive while a million cells are painted.
import { EMPTY, RAMP, SHADES, kindOf, ownerColour } from "./colours.js";

let cells = null, facts = null, image = null;

// Without a new frame, the last one is painted again in another colour.
self.onmessage = async ({ data: { buffer, mode, width, height } }) => {
  if (buffer) decode(buffer);
  image ??= new ImageData(width, height);
  const range = paint(new Uint32Array(image.data.buffer), mode, width, height);
  const picture = await createImageBitmap(image);
  postMessage({ ...facts, ...range, picture }, [picture]);
};

function decode(buffer) {
  const head = new DataView(buffer);
  const count = head.getUint32(4, true), organisms = head.getUint32(8, true);
  let at = 24;
  const take = (kind, length) => { const part = new kind(buffer, at, length); at += part.byteLength; return part; };
  cells = { cell: take(Int32Array, count), owner: take(Int32Array, count) };
  facts = { tick: Number(head.getBigInt64(16, true)), bytes: buffer.byteLength, cells: count, lacks: head.getUint32(12, true) };
  for (const name of ["id", "x", "y", "energy"]) facts[name] = take(Int32Array, organisms).slice();
  cells.value = take(Int32Array, count); cells.type = take(Int16Array, count);
  facts.dead = take(Uint8Array, organisms).slice();
}

function paint(pixels, mode, width, height) {
  const { cell, value, owner, type } = cells, count = cell.length;
  let low = Infinity, high = -Infinity, present = 0;
  for (let i = 0; i < count; i++) {
    const one = value[i];
    if (one < low) low = one;
    if (one > high) high = one;
    present |= 1 << kindOf(type[i]);
  }
  const colourOf = { type: byType(low, high), value: byValue(low, high), owner: byOwner() }[mode];
  pixels.fill(EMPTY);
  for (let i = 0; i < count; i++) {
    // A cell's id is x * height + y; a row of the image is one y.
    const x = cell[i] / height | 0;
    pixels[(cell[i] - x * height) * width + x] = colourOf(i, value, owner, type);
  }
  return { low, high, present };
}

function byType(low, high) {
  const lightness = 63 / Math.max(1, Math.abs(low), Math.abs(high));
  return (i, value, _, type) => SHADES[kindOf(type[i]) << 6 | Math.abs(value[i]) * lightness];
}

function byValue(low, high) {
  const spread = 1 / Math.max(1, high - low);
  return (i, value) => RAMP[Math.sqrt((value[i] - low) * spread) * 255 | 0];
}

function byOwner() {
  const owners = new Map();
  return (i, _, owner) => {
    let found = owners.get(owner[i]);
    if (found === undefined) owners.set(owner[i], found = ownerColour(owner[i]));
    return found;
  };
}
