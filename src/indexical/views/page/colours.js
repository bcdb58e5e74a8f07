// Colours of numbers, and small pictures of tensors.
"use strict";

function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function rgb(text) {
  const digits = text.trim().replace("#", "");
  return [0, 2, 4].map((at) => Number.parseInt(digits.slice(at, at + 2), 16));
}

function mixed(from, to, part) {
  return from.map((value, n) => Math.round(value + (to[n] - value) * Math.min(1, part)));
}

const hex = (parts) => `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;

// From paper to ink in 256 steps, as pixels.
function ramp(ink) {
  const [from, to] = [rgb(themeColour("--cell")), rgb(themeColour(ink))];
  return Uint32Array.from({ length: 256 }, (_, n) => pixel(mixed(from, to, n / 255)));
}

const pixel = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;

const mostOf = (table) => Math.max(...table.range().map(Math.abs)) || 1;

// How strongly a value is tinted, from 0 to 1.
const tintOf = (table, value) => (Number.isFinite(value) ? Math.min(1, Math.abs(value) / mostOf(table)) : 0);

// The last two coordinates at one place of the leading ones, as a picture of at most `most` points a side: each point
// is the largest number of its block. Masked blocks are hatched. It is painted once, and copied from then on.
function paint(canvas, table, lead, most) {
  const key = `${lead} ${most} ${themeColour("--cell")}`;
  table.painted ??= new Map();
  if (!table.painted.has(key)) table.painted.set(key, painted(document.createElement("canvas"), table, lead, most));
  const found = table.painted.get(key);
  Object.assign(canvas, { width: found.width, height: found.height });
  canvas.getContext("2d").drawImage(found, 0, 0);
  return canvas;
}

function painted(canvas, table, lead, most) {
  const [rows, columns] = matrixOf(table);
  const [height, width] = [Math.min(rows, most), Math.min(columns, most)];
  const start = table.shape.length > 2 ? table.offset([...lead, 0, 0]) : 0;
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const largest = new Float64Array(width * height);
  const seen = new Uint8Array(width * height);
  for (let at = 0; at < rows * columns; at += 1) {
    if (table.mask(start + at)) continue;
    const value = Number(table.values[start + at]);
    const block = Math.floor((Math.floor(at / columns) * height) / rows) * width + Math.floor(((at % columns) * width) / columns);
    seen[block] = 1;
    if (Math.abs(value) > Math.abs(largest[block])) largest[block] = value;
  }
  const [plus, minus, hatch, paper] = [ramp("--pos"), ramp("--neg"), pixel(rgb(themeColour("--hatch"))), pixel(rgb(themeColour("--cell")))];
  const scale = mostOf(table);
  largest.forEach((value, block) => {
    const part = Math.min(255, Math.round(30 + 225 * Math.sqrt(Math.abs(value) / scale))) || 0;
    if (!seen[block]) pixels[block] = (Math.floor(block / width) + (block % width)) % 3 === 0 ? hatch : paper;
    else pixels[block] = (value < 0 ? minus : plus)[value === 0 ? 0 : part];
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

// How many rows and columns a tensor has as a matrix.
const matrixOf = (table) => [table.shape.length > 1 ? table.shape.at(-2) : 1, table.shape.length ? table.shape.at(-1) : 1];

function thumbnail(table, lead, height = 28) {
  if (table.size === 0) return el("span", { class: "thumb none", "aria-hidden": "true" });
  const canvas = paint(el("canvas", { class: "thumb", "aria-hidden": "true" }), table, lead, 40);
  const wide = bounded((canvas.width / canvas.height) * height, 10, height * 1.8);
  canvas.style.cssText = `width: ${wide / 16}rem; height: ${bounded((canvas.height / canvas.width) * wide, 7, height) / 16}rem`;
  return canvas;
}
