// Parts of a page. Text from a program is only ever set as text, never as markup.
"use strict";

function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined));
  return node;
}

const button = (text, attributes, act) => el("button", { type: "button", ...attributes, onclick: act }, text);

const label = (name, place) => (place.length ? `${name}[${place.join(", ")}]` : name);

const joined = (nodes, between = ", ") => nodes.flatMap((node, n) => (n ? [between, node] : [node]));

function decimal(value, digits = 4) {
  if (typeof value === "boolean") return String(value);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "undefined" : value > 0 ? "∞" : "-∞";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value === 0 ? 0 : value);
  const text = value.toPrecision(digits);
  if (text.includes("e")) return text.replace(/\.?0+e/, "e");
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function percent(part) {
  const hundredths = 100 * part;
  if (hundredths > 0 && hundredths < 0.5) return "less than 1 %";
  return `${hundredths < 99.5 || part === 1 ? Math.round(hundredths) : decimal(hundredths, 4)} %`;
}

function placeOf(shape, offset) {
  const place = [];
  for (const length of [...shape].reverse()) {
    place.unshift(offset % length);
    offset = Math.floor(offset / length);
  }
  return place;
}

function* placesOf(sizes) {
  if (sizes.length === 0) {
    yield [];
    return;
  }
  for (let at = 0; at < sizes[0]; at += 1) for (const rest of placesOf(sizes.slice(1))) yield [at, ...rest];
}

// Places as a text; neighbours on a line are written as a range.
function listed(places) {
  if (places.some((place) => place.length !== 1)) {
    const shown = places.slice(0, 12).map((place) => `(${place.join(", ")})`);
    return shown.join(", ") + (places.length > 12 ? `, … (${places.length})` : "");
  }
  const runs = [];
  for (const [at] of places) {
    const last = runs.at(-1);
    if (last !== undefined && last[1] === at - 1) last[1] = at;
    else runs.push([at, at]);
  }
  const shown = runs.slice(0, 12).map(([low, high]) => (low === high ? String(low) : high === low + 1 ? `${low}, ${high}` : `${low}…${high}`));
  return shown.join(", ") + (runs.length > 12 ? `, … (${places.length})` : "");
}

// -------------------------------------------------------------------- colours

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
  const [from, to] = [rgb(themeColour("--paper")), rgb(themeColour(ink))];
  return Uint32Array.from({ length: 256 }, (_, n) => pixel(mixed(from, to, n / 255)));
}

const pixel = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
