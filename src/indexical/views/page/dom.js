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
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
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

// A number for a small cell: a few decimals, and a real minus sign.
function short(value, digits = Number.isInteger(value) ? 0 : 2) {
  if (Number.isNaN(value)) return "?";
  if (typeof value === "boolean" || !Number.isFinite(value)) return decimal(value).replace("-", "−");
  const size = Math.abs(value);
  if (size !== 0 && size < 0.005 && size >= 0.0005) return value.toFixed(3).replace("-", "−");
  if (size !== 0 && (size >= 1e5 || size < 0.0005)) return value.toExponential(0).replace("e+", "e").replaceAll("-", "−");
  const text = value.toFixed(size >= 100 ? 0 : size >= 10 ? Math.min(1, digits) : digits);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

// Whole percentages that make 100: what is left over goes to the largest remainders.
function percents(parts) {
  const whole = parts.map((part) => Math.floor(100 * part + 1e-9));
  const left = Math.round(100 * parts.reduce((sum, part) => sum + part, 0)) - whole.reduce((sum, part) => sum + part, 0);
  const order = parts.map((part, n) => [100 * part - whole[n], n]).sort((a, b) => b[0] - a[0]);
  for (const [, n] of order.slice(0, Math.max(0, left))) whole[n] += 1;
  return whole;
}

const bounded = (value, low, high) => Math.max(low, Math.min(high, value));

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

// A coordinate by the name it has in the text: `..r` is r, j' is j, and the j_1 of a function is j.
const KNOWN = new Set();

function bare(name) {
  const plain = name.replace(/^\.\.|'+$/g, "");
  const given = plain.replace(/_\d+$/, "");
  return !KNOWN.has(plain) && KNOWN.has(given) ? given : plain;
}

// A coordinate as it is written in a formula.
const spoken = (name) => (KNOWN.has(name.replace(/'+$/, "")) || bare(name) === name ? name : name.replace(/_\d+(?='*$)/, ""));

const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
