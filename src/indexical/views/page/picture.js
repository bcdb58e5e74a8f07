// The matrices as they are drawn now, and who listens to whom, as one SVG file.
"use strict";

function exportPicture() {
  const picture = pictureOf(activePage());
  const href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(picture)], { type: "image/svg+xml" }));
  const link = el("a", { href, download: "indexical.svg" });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
}

function pictureOf(page) {
  const ink = themeColour("--ink");
  const picture = svg("svg", { "font-family": "system-ui, DejaVu Sans, sans-serif", "font-size": "12" });
  let [left, top, tallest, right] = [0, 0, 0, 0];
  for (const figure of page.figures.values()) {
    const group = svg("g", {}, svg("text", { x: 8, y: 20, "font-weight": "bold", fill: ink }, figure.querySelector("figcaption code").textContent, leadText(figure)));
    const [width, height] = figure.querySelector("canvas") ? canvasInto(group, figure) : tableInto(group, figure);
    const wide = Math.max(width, 7.4 * group.firstChild.textContent.length) + 24;
    if (left > 0 && left + wide > 1000) [left, top, tallest] = [0, top + tallest + 16, 0];
    group.setAttribute("transform", `translate(${left} ${top})`);
    picture.append(group);
    left += wide;
    tallest = Math.max(tallest, height);
    right = Math.max(right, left);
  }
  top += tallest + 16;
  const lines = page.root.querySelector("svg.lines");
  if (lines !== null) {
    const copy = lines.cloneNode(true);
    const [, , width, height] = lines.getAttribute("viewBox").split(" ").map(Number);
    for (const line of copy.querySelectorAll("line")) line.setAttribute("stroke", themeColour("--plus"));
    for (const text of copy.querySelectorAll("text, circle")) text.setAttribute("fill", ink);
    for (const [name, value] of Object.entries({ x: 8, y: top, width, height, "font-size": 11 })) copy.setAttribute(name, value);
    picture.append(copy);
    top += height + 16;
    right = Math.max(right, width + 16);
  }
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${right} ${top}`, width: right, height: top })) picture.setAttribute(name, value);
  picture.prepend(svg("rect", { width: "100%", height: "100%", fill: themeColour("--paper") }));
  return picture;
}

function leadText(figure) {
  return [...figure.querySelectorAll("[role=tab][aria-selected=true]")].map((tab) => `, ${tab.getAttribute("aria-label")}`).join("");
}

function canvasInto(group, figure) {
  const [canvas, marks] = figure.querySelectorAll("canvas");
  const [width, height] = [marks.width, marks.height];
  for (const layer of [canvas, marks]) group.append(svg("image", { x: 8, y: 30, width, height, preserveAspectRatio: "none", style: "image-rendering: pixelated", href: layer.toDataURL() }));
  return [width, height + 30];
}

function tableInto(group, figure) {
  const rows = [...figure.querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll("td.cell")]);
  const heads = [...figure.querySelectorAll("thead th")];
  const sides = [...figure.querySelectorAll("tbody tr")].map((row) => row.querySelector("th"));
  const room = (nodes) => 7.4 * Math.max(0, ...nodes.map((node) => node?.textContent.length ?? 0));
  const width = Math.max(44, room(rows.flat()) + 10, room(heads) + 10);
  const [x0, y0] = [16 + room(sides), heads.length ? 48 : 30];
  const words = (x, y, node, anchor, fill = getComputedStyle(node).color) => svg("text", { x, y, "text-anchor": anchor, fill }, node.textContent);
  heads.forEach((head, n) => group.append(words(x0 + (n + 0.5) * width, 42, head, "middle")));
  sides.forEach((side, n) => { if (side !== null) group.append(words(x0 - 6, y0 + n * 22 + 15, side, "end")); });
  rows.forEach((row, y) => row.forEach((cell, x) => {
    const has = (kind) => cell.classList.contains(kind);
    const part = Number(cell.style.getPropertyValue("--v")) || 0;
    const fill = has("masked") ? "none" : hex(mixed(rgb(themeColour("--paper")), rgb(themeColour(has("negative") ? "--minus" : "--plus")), 0.62 * part));
    const stroke = themeColour(has("now-cell") || has("term-cell") ? "--mark" : has("read-cell") ? "--read" : "--rule");
    const marked = has("now-cell") || has("read-cell") || has("term-cell");
    group.append(svg("rect", { x: x0 + x * width + 1, y: y0 + y * 22 + 1, width: width - 2, height: 20, fill, stroke, "stroke-width": marked ? 2 : 1, "stroke-dasharray": has("masked") ? "2 3" : "none" }),
      words(x0 + (x + 0.5) * width, y0 + y * 22 + 15, cell, "middle", themeColour("--ink")));
  }));
  return [x0 + (rows[0]?.length ?? 0) * width, y0 + rows.length * 22];
}
