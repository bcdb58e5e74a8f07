// Who listens to whom: positions that ask, positions that answer, and a line between them as thick as the weight.
"use strict";

const MOST_LINES = 48; // More positions than these ask one at a time.

Object.assign(Page.prototype, {
  talkView() {
    if (this.data.communication.length === 0) return null;
    this.talk = { gather: this.data.communication[0], by: "weight", apart: {}, asks: 0, sort: "at", up: true };
    this.talkRoot = el("div", { class: "talk" });
    return this.talkRoot;
  },

  drawTalk() {
    const { talk } = this;
    const { gather } = talk;
    const table = this.tables.get(gather.definition);
    if (table === undefined) return;
    const focused = this.talkRoot.contains(document.activeElement) ? document.activeElement.dataset.control : undefined;
    const size = (name) => table.shape[gather.home.indexOf(name)];
    for (const name of gather.apart) talk.apart[name] ??= 0;
    const choose = (name) => el("label", {}, this.coordinate(name), " = ", el("select", {
      "aria-label": name, "data-control": name, onchange: (event) => this.choose({ [name]: Number(event.target.value) }),
    }, Array.from({ length: size(name) }, (_, n) => el("option", { value: String(n), selected: n === talk.apart[name] }, this.called(name, n)))));
    const ways = [["weight", "by weight"], ["carried", "by what is carried, ‖w·V‖"]];
    if (gather.after !== null) ways.push(["after", `after ${gather.after.matrix[1]}`]);
    const way = el("fieldset", { class: "ways" }, el("legend", {}, "lines as thick as"), ways.map(([key, words]) => el("label", {}, el("input", {
      type: "radio", name: `by-${this.number}`, value: key, checked: key === talk.by, "data-control": key, onchange: () => { talk.by = key; this.drawTalk(); },
    }), ` ${words}`)));
    const queries = size(gather.query);
    const keys = this.relation.value(gather.keys[1], { [gather.query]: queries - 1, ...talk.apart });
    const single = queries > MOST_LINES || keys > MOST_LINES;
    talk.single = single;
    talk.asks = Math.min(talk.asks, queries - 1);
    const who = single ? el("label", {}, this.coordinate(gather.query), " = ", el("input", {
      type: "number", min: "0", max: String(queries - 1), value: String(talk.asks), "data-control": "asks",
      onchange: (event) => { talk.asks = Math.max(0, Math.min(queries - 1, Math.trunc(Number(event.target.value)) || 0)); this.drawTalk(); } })) : null;
    const others = this.data.communication.length > 1 ? el("label", {}, "of ", el("select", { "aria-label": "which gather", "data-control": "gather", onchange: (event) => {
      talk.gather = this.data.communication[Number(event.target.value)];
      this.drawTalk();
    } }, this.data.communication.map((entry, n) => el("option", { value: String(n), selected: entry === gather }, entry.definition)))) : null;
    const asking = single ? [talk.asks] : Array.from({ length: queries }, (_, n) => n);
    const told = asking.map((query) => this.sentence(gather, talk.apart, query)).filter((text) => text !== null);
    this.talkRoot.replaceChildren(...[el("h2", {}, "Who listens to whom"), el("div", { class: "choices" }, others, gather.apart.map(choose), who), way,
      this.lines(gather, asking, queries, keys, single),
      told.length ? el("details", { class: "in-words", open: single }, el("summary", {}, "In words"), el("ul", {}, told.map((text) => el("li", {}, text)))) : null,
      this.headsView(gather)].filter((part) => part !== null));
    if (focused !== undefined) this.talkRoot.querySelector(`[data-control="${CSS.escape(focused)}"]`)?.focus();
  },

  // Another head, in the lines and in every matrix that has it.
  choose(at) {
    for (const page of [this, ...this.mates]) {
      for (const [name, n] of Object.entries(at)) page.turn(name, n);
    }
  },

  // ---------------------------------------------------------------- strength

  // How strongly a query hears a key; null where it does not listen there at all.
  strength(gather, apart, query, key, by) {
    const point = { ...apart, [gather.query]: query };
    const range = gather.keys.map((bound) => this.relation.value(bound, point));
    if (key < range[0] || key >= range[1] || (gather.where && !this.relation.value(gather.where, point))) return null;
    Object.assign(point, { [gather.key]: key, [`range of ${gather.key}`]: range });
    if (gather.guard !== null && !this.relation.value(gather.guard, point)) return null;
    if (this.relation.isMasked(gather.weight, point)) return null;
    const weight = Number(this.relation.value(gather.weight, point));
    if (by === "weight") return weight;
    const table = this.tables.get(gather.definition);
    const carried = [...placesOf(gather.carry.map((name) => table.shape[gather.home.indexOf(name)]))].map((place) => {
      const inner = { ...point, ...Object.fromEntries(gather.carry.map((name, n) => [name, place[n]])) };
      return { inner, value: weight * gather.values.reduce((product, value) => product * Number(this.relation.value(value, inner)), 1) };
    });
    if (by === "carried" || gather.after === null) return Math.hypot(...carried.map((entry) => entry.value));
    return this.strengthAfter(gather, carried);
  },

  // The length of what is carried, after the matrix that takes it on.
  strengthAfter(gather, carried) {
    const { after } = gather;
    const table = this.tables.get(after.definition);
    const features = after.features.filter((name) => !after.home.includes(name));
    const sizes = features.map((name) => table.shape[table.tensor.coordinates.indexOf(name)]);
    const lengths = [...placesOf(sizes)].map((place) => {
      const there = Object.fromEntries(features.map((name, n) => [name, place[n]]));
      return carried.reduce((found, { inner, value }) => {
        const at = Object.fromEntries(after.home.map((name, n) => [name, inner[gather.home[n]]]));
        return found + value * Number(this.relation.value(after.matrix, { ...at, ...there }));
      }, 0);
    });
    return Math.hypot(...lengths);
  },

  // --------------------------------------------------------------- sentences

  // What a query hears, in words; null where its weights are no distribution.
  sentence(gather, apart, query) {
    const point = { ...apart, [gather.query]: query };
    const [low, high] = gather.keys.map((bound) => this.relation.value(bound, point));
    const heard = [];
    for (let key = low; key < high; key += 1) {
      const weight = this.strength(gather, apart, query, key, "weight");
      if (weight !== null) heard.push({ key, weight });
    }
    const total = heard.reduce((sum, { weight }) => sum + weight, 0);
    if (heard.some(({ weight }) => !(weight >= 0)) || Math.abs(total - 1) > 1e-4) return null;
    const named = (name, at) => (this.data.labels[name]?.[at] !== undefined ? `“${this.called(name, at)}”` : `${this.data.coordinates.find((entry) => entry.name === name)?.space ?? name} ${at}`);
    const shown = heard.length <= 6 ? heard.filter(({ weight }) => weight > 0) : [...heard].sort((a, b) => b.weight - a.weight).slice(0, 5).filter(({ weight }) => weight > 0);
    const parts = shown.map(({ key, weight }, n) => `${percent(weight)} ${n ? "" : "of its attention "}to ${named(gather.key, key)}`);
    const others = heard.length - shown.length;
    const rest = 1 - shown.reduce((sum, { weight }) => sum + weight, 0);
    if (others > 0 && rest > 1e-9) parts.push(`${percent(rest)} to ${others === 1 ? "one other" : `${others} others`}`);
    const last = parts.length > 1 ? ` and ${parts.pop()}` : "";
    return `${named(gather.query, query)} gives ${parts.join(", ")}${last}.`;
  },

  // The sentence for the row that a cell of weights, or of what is gathered with them, stands in.
  sentenceFor(name, place) {
    for (const gather of this.data.communication) {
      const home = gather.definition === name ? gather.home : gather.tensor?.name === name ? gather.tensor.coordinates : null;
      if (home === null) continue;
      const point = Object.fromEntries(home.map((coordinate, axis) => [coordinate, place[axis]]));
      const text = this.sentence(gather, Object.fromEntries(gather.apart.map((coordinate) => [coordinate, point[coordinate] ?? 0])), point[gather.query]);
      if (text !== null) return el("p", { class: "sentence" }, text);
    }
    return null;
  },

  // ------------------------------------------------------------------- lines

  lines(gather, asking, queries, keys, single) {
    const { by, apart } = this.talk;
    const rows = Math.max(keys, single ? 1 : queries, 1);
    const pitch = single ? Math.max(2, Math.min(22, 640 / rows)) : Math.max(11, Math.min(28, 640 / rows));
    const names = (name, count) => Array.from({ length: count }, (_, n) => this.called(name, n));
    const room = (words) => Math.min(180, Math.max(62, 14 + 6.4 * Math.max(...words.map((word) => word.length))));
    const left = room(names(gather.query, queries));
    const right = left + 230;
    const picture = svg("svg", { viewBox: `0 0 ${right + room(names(gather.key, keys))} ${rows * pitch + 40}`, class: "lines", role: "img", "aria-label": `${gather.query} asks, ${gather.key} answers; the same stands below in words` },
      svg("text", { x: left, y: 14, "text-anchor": "end", class: "head" }, `${gather.query} asks`), svg("text", { x: right, y: 14, class: "head" }, `${gather.key} answers`));
    const y = (n, count) => 30 + (n + 0.5) * ((rows * pitch) / count);
    const from = (query) => (single ? 30 + (rows * pitch) / 2 : y(query, queries));
    const found = asking.flatMap((query) => Array.from({ length: keys }, (_, key) => ({ query, key, strength: this.strength(gather, apart, query, key, by) }))).filter((entry) => Number.isFinite(entry.strength) && entry.strength !== null);
    const most = found.reduce((largest, { strength }) => Math.max(largest, strength), 0) || 1;
    for (const { query, key, strength } of found.filter((entry) => entry.strength > most / 200)) {
      picture.append(svg("line", {
        x1: left, y1: from(query), x2: right, y2: y(key, keys), "stroke-width": 0.5 + 7 * (strength / most), "stroke-opacity": 0.15 + 0.7 * (strength / most),
        "data-query": query, "data-key": key, "data-strength": strength, onclick: () => this.selectWeight(gather, query, key),
      }, svg("title", {}, `${gather.query} = ${this.called(gather.query, query)} hears ${gather.key} = ${this.called(gather.key, key)}: ${decimal(strength)}`)));
    }
    const dot = (x, at, text, side) => [svg("circle", { cx: x, cy: at, r: Math.min(4, pitch / 3) }),
      pitch >= 9 ? svg("text", { x: x + 8 * side, y: at + 4, "text-anchor": side < 0 ? "end" : "start" }, text.length > 26 ? `${text.slice(0, 25)}…` : text) : null];
    for (const query of asking) picture.append(...dot(left, from(query), this.called(gather.query, query), -1).filter(Boolean));
    for (let key = 0; key < keys; key += 1) picture.append(...dot(right, y(key, keys), this.called(gather.key, key), 1).filter(Boolean));
    return picture;
  },

  selectWeight(gather, query, key) {
    if (gather.tensor === null) return;
    const point = { ...this.talk.apart, [gather.query]: query, [gather.key]: key };
    this.select(gather.tensor.name, gather.tensor.coordinates.map((name) => point[name] ?? 0), true);
  },

  // The line of the weight that is chosen.
  markLine(trace) {
    const gather = this.talk?.gather;
    if (gather?.tensor?.name !== trace.name) return;
    const { query, key } = gather.tensor;
    this.talkRoot.querySelector(`line[data-query="${trace.place[query]}"][data-key="${trace.place[key]}"]`)?.classList.add("now");
  },

  // ------------------------------------------------------------------- heads

  // Every head with a small picture, a word and the figures behind it; sorted by what is clicked.
  headsView(gather) {
    if (gather.heads.length < 2) return null;
    const { talk } = this;
    const columns = [["at", "head"], ["word", "word"], ["entropy", "entropy, bits"], ["keys", "effective keys"], ["self", "on self"], ["previous", "on previous"], ["first", "on first"], ["distance", "distance"]];
    const named = (head) => Object.entries(head.at).map(([name, at]) => `${name} = ${this.called(name, at)}`).join(", ");
    const value = (head) => (talk.sort === "at" ? gather.heads.indexOf(head) : talk.sort === "word" ? head.word ?? "" : Number(head[talk.sort]));
    const sorted = [...gather.heads].sort((a, b) => (talk.up ? 1 : -1) * (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0));
    const sort = (field) => { talk.up = talk.sort === field ? !talk.up : true; talk.sort = field; this.drawTalk(); };
    const isNow = (head) => gather.apart.every((name) => head.at[name] === undefined || head.at[name] === talk.apart[name]);
    return el("div", { class: "scroll" }, el("table", { class: "heads" }, el("caption", {}, "Heads"),
      el("thead", {}, el("tr", {}, el("td", {}), columns.map(([field, words]) => el("th", { scope: "col", "aria-sort": field !== talk.sort ? "none" : talk.up ? "ascending" : "descending" },
        button(words, { "data-control": `sort-${field}` }, () => sort(field)))))),
      el("tbody", {}, sorted.map((head) => el("tr", { "data-head": named(head), class: isNow(head) ? "now-row" : "" }, el("td", {}, this.thumbnail(gather, head)),
        el("th", { scope: "row" }, button(named(head), { class: "down", "data-control": named(head), "aria-pressed": String(isNow(head)) }, () => this.choose(head.at))), el("td", {}, head.word ?? ""),
        columns.slice(2).map(([field]) => el("td", {}, decimal(Number(head[field]), 3))))))));
  },

  // The largest weight of every block that a point stands for.
  thumbnail(gather, head) {
    this.thumbnails ??= new Map();
    const theme = themeColour("--paper");
    const id = `${gather.definition} ${Object.values(head.at)} ${theme}`;
    if (this.thumbnails.has(id)) return this.thumbnails.get(id);
    const table = this.tables.get(gather.tensor.name);
    const { coordinates, query, key } = gather.tensor;
    const [rows, columns] = [table.shape[query], table.shape[key]];
    const [height, width] = [Math.min(rows, 48), Math.min(columns, 48)];
    const canvas = el("canvas", { width, height, class: "thumbnail", role: "img", "aria-label": `weights, ${head.word ?? "mixed"}` });
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    const shades = ramp("--plus");
    const [down, across] = [query, key].map((axis) => table.shape.slice(axis + 1).reduce((product, length) => product * length, 1));
    const start = table.offset(coordinates.map((name, n) => (n === query || n === key ? 0 : head.at[name])));
    const most = new Float64Array(width * height);
    for (let row = 0; row < rows; row += 1) {
      for (let column = 0; column < columns; column += 1) {
        const value = Number(table.values[start + row * down + column * across]);
        const at = Math.floor((row * height) / rows) * width + Math.floor((column * width) / columns);
        if (value > most[at]) most[at] = value;
      }
    }
    most.forEach((value, at) => { pixels[at] = shades[Math.min(255, Math.round(255 * Math.sqrt(value)))]; });
    context.putImageData(image, 0, 0);
    this.thumbnails.set(id, canvas);
    return canvas;
  },
});
