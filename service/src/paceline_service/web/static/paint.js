// Canvas basics: device pixels, patterns that tell phases apart without colour, small shapes.

const patterns = new Map();

/** Size `canvas` for the device's pixels; returns a context that draws in CSS pixels. */
export function prepare(canvas, width, height) {
  const scale = Math.max(1, Math.min(3, window.devicePixelRatio || 1));
  const w = Math.round(width * scale);
  const h = Math.round(height * scale);
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

const STROKES = {
  input: (c) => { line(c, -2, 8, 8, -2); line(c, 2, 12, 12, 2); },
  optimizer: (c) => { c.fillRect(1, 1, 1.6, 1.6); c.fillRect(5, 5, 1.6, 1.6); },
  copy: (c) => { line(c, 0, 4, 8, 4); line(c, 4, 0, 4, 8); },
  checkpoint: (c) => { c.fillRect(2, 2, 4, 4); },
  comm: (c) => { line(c, 0, 0, 8, 8); line(c, 8, 0, 0, 8); },
  host: (c) => { c.fillRect(0, 3, 8, 1); },
};

function line(c, x0, y0, x1, y1) {
  c.beginPath();
  c.moveTo(x0, y0);
  c.lineTo(x1, y1);
  c.stroke();
}

/** Return a fill for `kind`: its colour, and a hatch for those that need one. */
export function fillOf(context, kind, colours) {
  const draw = STROKES[kind];
  if (!draw) return colours[kind];
  const key = `${kind}|${colours[kind]}|${colours.hatch}`;
  if (!patterns.has(key)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const c = tile.getContext("2d");
    c.fillStyle = colours[kind];
    c.fillRect(0, 0, 8, 8);
    c.fillStyle = c.strokeStyle = colours.hatch;
    c.lineWidth = 1;
    draw(c);
    patterns.set(key, context.createPattern(tile, "repeat"));
  }
  return patterns.get(key);
}

/** Draw text cut with an ellipsis where it is wider than `most` px. */
export function textIn(context, text, x, y, most) {
  let shown = text;
  while (shown.length > 2 && context.measureText(shown).width > most) shown = `${shown.slice(0, -2)}…`;
  context.fillText(shown, x, y);
}

/** The same with its end kept: names of nodes and ranks differ there. */
export function textTailIn(context, text, x, y, most) {
  let shown = text;
  while (shown.length > 2 && context.measureText(shown).width > most) shown = `…${shown.slice(2)}`;
  context.fillText(shown, x, y);
}

/** A filled triangle that points down at (x, y). */
export function pointer(context, x, y, size) {
  context.beginPath();
  context.moveTo(x - size, y - size * 1.3);
  context.lineTo(x + size, y - size * 1.3);
  context.lineTo(x, y);
  context.fill();
}

/** Interpolate three "#rrggbb" colours; returns a table of 256 [r, g, b]. */
export function ramp(low, middle, high) {
  const [a, b, c] = [low, middle, high].map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  return Array.from({ length: 256 }, (_, i) => {
    const t = (i / 255) * 2;
    const [from, to, share] = t < 1 ? [a, b, t] : [b, c, t - 1];
    return from.map((v, j) => Math.round(v + (to[j] - v) * share));
  });
}
