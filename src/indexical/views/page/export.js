// The stage as it stands now, with its marks, and who listens to whom, as one SVG file.
"use strict";

function exportPicture() {
  save(new Blob([new XMLSerializer().serializeToString(pictureOf(activePage()))], { type: "image/svg+xml" }), "indexical.svg");
}

// The same in points, twice as many as on the screen.
async function exportPoints() {
  const picture = pictureOf(activePage());
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(picture))}`;
  await image.decode();
  const canvas = el("canvas", { width: String(2 * picture.getAttribute("width")), height: String(2 * picture.getAttribute("height")) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((found) => save(found, "indexical.png"), "image/png");
}

function save(file, name) {
  const href = URL.createObjectURL(file);
  const link = el("a", { href, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
}

function pictureOf(page) {
  const ink = themeColour("--ink");
  const picture = svg("svg", { "font-family": "system-ui, DejaVu Sans, sans-serif", "font-size": "12" });
  let top = listeningInto(picture, page, ink);
  let [left, tallest, right] = [0, 0, 620];
  for (const figure of page.stage.querySelectorAll("figure.tensor")) {
    const group = svg("g", {}, svg("text", { x: 8, y: 20, "font-weight": "bold", fill: ink }, `${figure.querySelector("h3 .name").textContent}${leadText(figure)}`));
    const [width, height] = tableInto(group, figure);
    const wide = Math.max(width, 7.4 * group.firstChild.textContent.length) + 24;
    if (left > 0 && left + wide > 1000) [left, top, tallest] = [0, top + tallest + 16, 0];
    group.setAttribute("transform", `translate(${left} ${top})`);
    picture.append(group);
    left += wide;
    tallest = Math.max(tallest, height);
    right = Math.max(right, left);
  }
  top += tallest + 16;
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${right} ${top}`, width: right, height: top })) picture.setAttribute(name, value);
  picture.prepend(svg("rect", { width: "100%", height: "100%", fill: themeColour("--bg") }));
  return picture;
}

// The sentence, the arcs and the tokens under them. Returns where they end.
function listeningInto(picture, page, ink) {
  const arcs = page.picture.querySelector("svg.arcs");
  if (arcs === null) return 0;
  picture.append(svg("text", { x: 8, y: 24, "font-size": 18, fill: ink }, [...page.sayLine.childNodes].filter((node) => node.nodeName !== "SMALL").map((node) => node.textContent).join("")));
  const copy = arcs.cloneNode(true);
  for (const [name, value] of Object.entries({ x: 0, y: 36, width: 620, height: TALL })) copy.setAttribute(name, value);
  const colour = (text) => text.replace(/var\((--[\w-]+)\)/g, (_, name) => themeColour(name));
  for (const node of copy.querySelectorAll("[style], [stop-color]")) {
    for (const name of ["style", "stop-color"]) if (node.hasAttribute(name)) node.setAttribute(name, colour(node.getAttribute(name)));
  }
  for (const line of copy.querySelectorAll("path")) {
    line.setAttribute("fill", "none");
    line.setAttribute("stroke", ink);
    line.setAttribute("stroke-opacity", line.classList.contains("on") ? "0.9" : "0.1");
  }
  picture.append(copy);
  const rows = [...page.picture.querySelectorAll(".tokens")];
  rows.forEach((row, n) => [...row.querySelectorAll(".seat")].forEach((seat, at, all) => {
    const x = ((at + 0.5) / all.length) * 620;
    const y = rows.length > 1 && n === 0 ? 50 : 36 + TALL + 18;
    const text = (node, below, size) => (node ? picture.append(svg("text", { x, y: y + below, "text-anchor": "middle", "font-size": size, fill: ink }, node.textContent)) : null);
    text(seat.querySelector(".token"), 0, 14);
    text(seat.querySelector(".taken b"), 18, 12);
  }));
  return 36 + TALL + 56;
}

function leadText(figure) {
  return [...figure.querySelectorAll(".lead [aria-pressed=true]")].map((lead) => `, ${lead.getAttribute("aria-label")}`).join("");
}

function tableInto(group, figure) {
  const rows = [...figure.querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll("td.cell")]);
  const heads = [...figure.querySelectorAll("thead th.axis")];
  const sides = [...figure.querySelectorAll("tbody tr")].map((row) => row.querySelector("th"));
  const room = (nodes) => 7.4 * Math.max(0, ...nodes.map((node) => node?.textContent.length ?? 0));
  const width = Math.max(44, room(rows.flat()) + 10, room(heads) + 10);
  const [x0, y0] = [16 + room(sides), heads.length ? 48 : 30];
  const words = (x, y, node, anchor, fill = getComputedStyle(node).color) => svg("text", { x, y, "text-anchor": anchor, fill }, node.textContent);
  heads.forEach((head, n) => group.append(words(x0 + (n + 0.5) * width, 42, head, "middle")));
  sides.forEach((side, n) => { if (side !== null) group.append(words(x0 - 6, y0 + n * 22 + 15, side, "end")); });
  rows.forEach((row, y) => row.forEach((cell, x) => {
    const has = (kind) => cell.classList.contains(kind);
    const part = Number(cell.style.getPropertyValue("--tint")) || 0;
    const fill = has("masked") ? "none" : hex(mixed(rgb(themeColour("--cell")), rgb(themeColour(has("negative") ? "--neg" : "--pos")), 0.52 * part));
    const stroke = themeColour(has("chosen") ? "--now" : has("part") ? "--ink" : "--line");
    group.append(svg("rect", { x: x0 + x * width + 1, y: y0 + y * 22 + 1, width: width - 2, height: 20, rx: 3, fill, stroke, "stroke-width": has("chosen") ? 2 : 1, "stroke-dasharray": has("masked") ? "2 3" : "none" }),
      words(x0 + (x + 0.5) * width, y0 + y * 22 + 15, cell, "middle", themeColour("--ink")));
  }));
  return [x0 + (rows[0]?.length ?? 0) * width, y0 + rows.length * 22];
}
