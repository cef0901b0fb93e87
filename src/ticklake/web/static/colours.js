// The colours of the world, as pixels of an ImageData.
export const TYPES = [["type 0", 0xff5aa2e8], ["type 1", 0xfff2a65e], ["energy", 0xff6cc95a], ["structure", 0xffa08bb8],
  ["type 4", 0xff4fd1d9], ["type 5", 0xffd977c9], ["type 6", 0xff7fd7f7], ["type 7", 0xffb7b0ff],
  ["other types", 0xff8f9aa3]];
const OTHERS = TYPES.length - 1;
export const kindOf = (type) => type >= 0 && type < OTHERS ? type : OTHERS;
export const nameOf = (type) => kindOf(type) === OTHERS ? `type ${type}` : TYPES[type][0];
export const EMPTY = 0xff120f0a;

const rgb = (r, g, b) => (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;

// Dark blue over teal to yellow: lighter is more, which works without colour vision too.
export const RAMP = new Uint32Array(256).map((_, at) => {
  const stops = [[38, 20, 72], [44, 72, 124], [33, 122, 128], [72, 178, 102], [246, 226, 70]];
  const place = at / 255 * 4, from = Math.min(3, Math.floor(place)), part = place - from;
  return rgb(...stops[from].map((value, channel) => Math.round(value + (stops[from + 1][channel] - value) * part)));
});

// 64 shades per type, one type after the other: darker means less.
export const SHADES = new Uint32Array(TYPES.length * 64).map((_, at) => {
  const shade = TYPES[at >> 6][1], light = 0.35 + 0.65 * (at & 63) / 63;
  return rgb((shade & 255) * light, (shade >> 8 & 255) * light, (shade >> 16 & 255) * light);
});

export function ownerColour(owner) {
  if (!owner) return 0xff3a332c;
  const turn = (owner * 0.61803398875) % 1, mix = (shift) => 90 + 150 * Math.abs(((turn + shift) % 1) * 2 - 1);
  return rgb(mix(0), mix(1 / 3), mix(2 / 3));
}
