// A matrix of weights on a canvas: colours by row or by logarithm, axes with numbers, and a window that can be moved.
"use strict";

const MARGIN = { left: 64, top: 56, right: 30, bottom: 4 }; // On the right, the slanted word over the last column.

class Matrix {
  // `act` has: point(query, key), leave(), choose(query, key).
  constructor(data, act) {
    this.data = data;
    this.act = act;
    this.mode = "row";
    this.marks = []; // Positions that a search found.
    this.whole();
    this.canvas = el("canvas", { class: "matrix", tabindex: "0", role: "application", "aria-roledescription": "matrix of weights", "aria-label": "Weights: a row for each query, a column for each key. Arrow keys move the chosen cell, plus and minus zoom, 0 shows all." });
    this.across = el("i", { class: "hair across", "aria-hidden": "true" });
    this.down = el("i", { class: "hair down", "aria-hidden": "true" });
    this.brush = el("i", { class: "brush", "aria-hidden": "true" });
    this.node = el("div", { class: "plot" }, this.canvas, this.across, this.down, this.brush);
    this.listen();
  }

  whole() {
    this.view = { q0: 0, q1: this.data.queries, k0: 0, k1: this.data.keys };
  }

  // A head: its codes by cell, the largest weight of each line of cells, and the exact largest of each row.
  show(head) {
    this.head = head;
    this.shade();
    this.draw();
  }

  // How dark each cell is, 0 to 255, in the way that is chosen. Nothing heard is 0; any weight at all is seen.
  shade() {
    const { codes, scales, columns } = this.head;
    const { least, decades } = this.data;
    const steps = 255 - least;
    this.shades = new Uint8Array(codes.length);
    const table = new Uint8Array(256);
    for (let row = 0; row * columns < codes.length; row += 1) {
      const scale = Math.log10(scales[row] || 1);
      for (let code = 2; row === 0 || this.mode === "log" ? code < 256 : false; code += 1) {
        const power = ((Math.max(code, least) - 255) / steps) * decades; // Of ten, against the largest of the row.
        table[code] = this.mode === "log" ? bounded(Math.round(255 * (1 + (power + scale) / decades)), 14, 255) : Math.max(10, Math.round(255 * 10 ** power));
      }
      const end = (row + 1) * columns;
      for (let at = row * columns; at < end; at += 1) this.shades[at] = table[codes[at]];
    }
  }

  // ---------------------------------------------------------------- drawing

  draw() {
    const side = this.node.clientWidth;
    if (side === 0 || this.head === undefined) return;
    const ratio = Math.min(2, devicePixelRatio || 1);
    const [width, height] = [side - MARGIN.left - MARGIN.right, this.height(side) - MARGIN.top - MARGIN.bottom];
    this.size = [width, height];
    Object.assign(this.canvas, { width: Math.round(side * ratio), height: Math.round(this.height(side) * ratio) });
    this.canvas.style.height = `${this.height(side)}px`;
    const context = this.canvas.getContext("2d");
    const [wide, tall] = [Math.round(width * ratio), Math.round(height * ratio)];
    context.putImageData(this.pixels(context, wide, tall), Math.round(MARGIN.left * ratio), Math.round(MARGIN.top * ratio));
    context.scale(ratio, ratio);
    this.drawTop(context);
    this.drawAxes(context);
    this.drawChosen(context);
  }

  height(side) {
    const { queries, keys } = this.data;
    return MARGIN.top + MARGIN.bottom + bounded((side - MARGIN.left - MARGIN.right) * bounded(queries / keys, 0.12, 1), 60, innerHeight * 0.62);
  }

  // Each pixel shows the darkest of the cells under it.
  pixels(context, wide, tall) {
    const { q0, q1, k0, k1 } = this.view;
    const { block } = this.data;
    const { columns } = this.head;
    const rows = this.shades.length / columns;
    const image = context.createImageData(wide, tall);
    const out = new Uint32Array(image.data.buffer);
    const colours = ramp("--pos");
    colours[0] = pixel(rgb(themeColour("--sunken")));
    const span = (at, low, high, count, most) => [bounded(Math.floor((low + (at * (high - low)) / count) / block), 0, most - 1), bounded(Math.ceil((low + ((at + 1) * (high - low)) / count) / block), 1, most)];
    const [starts, ends] = [new Int32Array(wide), new Int32Array(wide)];
    for (let x = 0; x < wide; x += 1) {
      const [start, end] = span(x, k0, k1, wide, columns);
      starts[x] = start;
      ends[x] = (k1 - k0) / wide / block < 1 ? start + 1 : Math.max(end, start + 1);
    }
    const line = new Uint8Array(columns);
    let done = -1;
    for (let y = 0; y < tall; y += 1) {
      const [top, end] = span(y, q0, q1, tall, rows);
      const bottom = (q1 - q0) / tall / block < 1 ? top + 1 : Math.max(end, top + 1);
      if (top === done && bottom === top + 1) {
        out.copyWithin(y * wide, (y - 1) * wide, y * wide);
        continue;
      }
      done = top;
      line.set(this.shades.subarray(top * columns, (top + 1) * columns));
      for (let row = top + 1; row < bottom; row += 1) {
        for (let column = starts[0], at = row * columns + column; column < ends[wide - 1]; column += 1, at += 1) if (this.shades[at] > line[column]) line[column] = this.shades[at];
      }
      for (let x = 0; x < wide; x += 1) {
        let most = line[starts[x]];
        for (let column = starts[x] + 1; column < ends[x]; column += 1) if (line[column] > most) most = line[column];
        out[y * wide + x] = colours[most];
      }
    }
    return image;
  }

  // Where a cell of the picture is a block, from near: all weights made again, or the exact largest out of each row.
  drawTop(context) {
    const [x, y] = [this.perKey(), this.perQuery()];
    if (this.data.block === 1 || y < 2 || x < 2) return;
    const { again } = this.head;
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, MARGIN.top, ...this.size);
    context.clip();
    context.globalAlpha = again === null ? 0.5 : 1;
    context.fillStyle = themeColour("--sunken");
    context.fillRect(MARGIN.left, MARGIN.top, ...this.size);
    context.globalAlpha = 1;
    const colours = ramp("--pos");
    const [first, last] = [Math.floor(this.view.k0), Math.min(this.data.keys, Math.ceil(this.view.k1))];
    for (let query = Math.floor(this.view.q0); query < Math.min(this.data.queries, this.view.q1); query += 1) {
      const top = this.head.row(query);
      const most = top[0].weight;
      const made = again === null || most === 0 ? top.map(({ key, weight }) => [key, weight]) : [...again.parts(query, first, last, top[0].key)].map((part, n) => [first + n, part * most]);
      for (const [key, weight] of made) {
        if (weight === 0) continue;
        const colour = colours[bounded(Math.round(255 * (this.mode === "log" ? 1 + Math.log10(weight) / this.data.decades : weight / most)), 14, 255)];
        context.fillStyle = `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`;
        context.fillRect(this.x(key), this.y(query), Math.max(1, x), Math.max(1, y));
      }
    }
    context.restore();
  }

  perKey() { return this.size[0] / (this.view.k1 - this.view.k0); }
  perQuery() { return this.size[1] / (this.view.q1 - this.view.q0); }
  x(key) { return MARGIN.left + (key - this.view.k0) * this.perKey(); }
  y(query) { return MARGIN.top + (query - this.view.q0) * this.perQuery(); }

  drawAxes(context) {
    const font = getComputedStyle(document.body).fontFamily;
    context.font = `12px ${font}`;
    context.textBaseline = "middle";
    const { q0, q1, k0, k1 } = this.view;
    const token = (at) => this.data.tokens?.[at];
    const text = (at) => (token(at) === undefined ? String(at) : `${shown(token(at)).slice(0, 7)} ${at}`);
    context.fillStyle = themeColour("--c0");
    context.textAlign = "right";
    const asks = (query) => text(query + this.data.offset);
    for (const query of ticks(q0, q1, this.perQuery(), 14)) context.fillText(asks(query), MARGIN.left - 6, this.y(query + 0.5), MARGIN.left - 8);
    context.fillStyle = themeColour("--c1");
    context.textAlign = "left";
    for (const key of ticks(k0, k1, this.perKey(), 15)) {
      context.save();
      context.translate(this.x(key + 0.5), MARGIN.top - 6);
      context.rotate(-Math.PI / 3);
      context.fillText(text(key), 0, 0, 62);
      context.restore();
    }
    context.fillStyle = themeColour("--now");
    for (const at of this.marks) {
      const [x, y] = [this.x(at + 0.5), this.y(at - this.data.offset + 0.5)];
      if (at >= k0 && at < k1) context.fillRect(x - 1, MARGIN.top - 5, 2, 5);
      if (at - this.data.offset >= q0 && at - this.data.offset < q1) context.fillRect(MARGIN.left - 5, y - 1, 5, 2);
    }
  }

  drawChosen(context) {
    const { query, key } = this.chosen ?? {};
    if (query === undefined) return;
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, MARGIN.top, ...this.size);
    context.clip();
    context.strokeStyle = themeColour("--now");
    context.lineWidth = 1.5;
    const tall = Math.max(3, this.perQuery());
    context.strokeRect(MARGIN.left, this.y(query) - (tall - this.perQuery()) / 2, this.size[0], tall);
    if (key !== undefined) {
      const side = Math.max(7, this.perKey());
      context.strokeRect(this.x(key + 0.5) - side / 2, this.y(query + 0.5) - Math.max(7, tall) / 2, side, Math.max(7, tall));
    }
    context.restore();
  }

  // ---------------------------------------------------------------- pointing

  cell(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - MARGIN.left, event.clientY - box.top - MARGIN.top];
    const { q0, q1, k0, k1 } = this.view;
    return { x, y, query: Math.floor(q0 + (y / this.size[1]) * (q1 - q0)), key: Math.floor(k0 + (x / this.size[0]) * (k1 - k0)), isIn: x >= 0 && y >= 0 && x < this.size[0] && y < this.size[1] };
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointermove", (event) => {
      if (this.size === undefined) return;
      const at = this.cell(event);
      if (this.from !== undefined) this.drag(at);
      if (!at.isIn) {
        this.leave();
        return;
      }
      this.across.style.transform = `translateY(${MARGIN.top + at.y}px)`;
      this.down.style.transform = `translateX(${MARGIN.left + at.x}px)`;
      this.node.classList.add("pointed");
      this.act.point(at.query, at.key);
    });
    canvas.addEventListener("pointerleave", () => this.leave());
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.cell(event).isIn) return;
      this.from = { ...this.cell(event), isPan: event.shiftKey, view: { ...this.view } };
      if (event.pointerType === "mouse") canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointercancel", () => this.drop());
    canvas.addEventListener("pointerup", (event) => {
      const [from, to] = [this.from, this.cell(event)];
      this.drop();
      if (from === undefined || from.isPan) return;
      const isBrush = Math.abs(to.x - from.x) > 6 && Math.abs(to.y - from.y) > 6;
      if (isBrush) this.zoomTo(from, to);
      else if (to.isIn) this.act.choose(to.query, to.key);
    });
    canvas.addEventListener("wheel", (event) => {
      const at = this.cell(event);
      if (!at.isIn) return;
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, at.x / this.size[0], at.y / this.size[1]);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  leave() {
    if (!this.node.classList.contains("pointed")) return;
    this.node.classList.remove("pointed");
    this.act.leave();
  }

  drag(at) {
    const { from } = this;
    if (from.isPan) {
      const [x, y] = [(from.x - at.x) / this.perKey(), (from.y - at.y) / this.perQuery()];
      this.move({ q0: from.view.q0 + y, q1: from.view.q1 + y, k0: from.view.k0 + x, k1: from.view.k1 + x });
      return;
    }
    const [left, top] = [Math.max(0, Math.min(from.x, at.x)), Math.max(0, Math.min(from.y, at.y))];
    const [right, bottom] = [Math.min(this.size[0], Math.max(from.x, at.x)), Math.min(this.size[1], Math.max(from.y, at.y))];
    this.brush.style.cssText = `display: block; left: ${MARGIN.left + left}px; top: ${MARGIN.top + top}px; width: ${right - left}px; height: ${bottom - top}px`;
  }

  drop() {
    this.from = undefined;
    this.brush.style.display = "none";
  }

  zoomTo(from, to) {
    const pair = (a, b, most) => [bounded(Math.min(a, b), 0, most - 1), bounded(Math.max(a, b) + 1, 1, most)];
    const [q0, q1] = pair(from.query, to.query, this.data.queries);
    const [k0, k1] = pair(from.key, to.key, this.data.keys);
    this.move({ q0, q1, k0, k1 });
  }

  zoom(by, x = 0.5, y = 0.5) {
    const { q0, q1, k0, k1 } = this.view;
    const span = (low, high, part, most) => {
      const size = bounded((high - low) * by, Math.min(4, most), most);
      const start = bounded(low + (high - low - size) * part, 0, most - size);
      return [start, start + size];
    };
    const [a, b] = span(q0, q1, y, this.data.queries);
    const [c, d] = span(k0, k1, x, this.data.keys);
    this.move({ q0: a, q1: b, k0: c, k1: d });
  }

  move(view) {
    const [tall, wide] = [view.q1 - view.q0, view.k1 - view.k0];
    const q0 = bounded(view.q0, 0, this.data.queries - tall);
    const k0 = bounded(view.k0, 0, this.data.keys - wide);
    this.view = { q0, q1: q0 + tall, k0, k1: k0 + wide };
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.draw());
  }

  // Bring a cell into the window.
  reveal(query, key) {
    const { q0, q1, k0, k1 } = this.view;
    const into = (at, low, high) => (at === undefined || (at >= low && at < high) ? low : at - (high - low) / 2);
    const [q, k] = [into(query, q0, q1), into(key, k0, k1)];
    this.move({ q0: q, q1: q + q1 - q0, k0: k, k1: k + k1 - k0 });
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const { query = this.data.queries - 1, key = 0 } = this.chosen ?? {};
    const far = event.shiftKey ? 16 : 1;
    const go = (down, right) => () => this.act.choose(bounded(query + down * far, 0, this.data.queries - 1), bounded(key + right * far, 0, this.data.keys - 1));
    const act = { ArrowUp: go(-1, 0), ArrowDown: go(1, 0), ArrowLeft: go(0, -1), ArrowRight: go(0, 1), "+": () => this.zoom(0.8), "-": () => this.zoom(1.25), 0: () => { this.whole(); this.draw(); } }[event.key];
    if (act === undefined) return;
    event.preventDefault();
    act();
  }
}

// Numbers for an axis: all where there is room, else round ones.
function ticks(low, high, each, least) {
  const steps = [1, 2, 5].flatMap((first) => [0, 1, 2, 3, 4].map((power) => first * 10 ** power)).sort((a, b) => a - b);
  const step = steps.find((size) => size * each >= (size === 1 ? least - 2 : 3 * least)) ?? 50000;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at < high; at += step) found.push(at);
  return found;
}

// A token as it can be seen: blanks and line ends have a sign.
const shown = (token) => token.replace(/^[Ġ▁]/, "").replaceAll("\n", "↵").replaceAll("\t", "⇥").trim() || "␣";
