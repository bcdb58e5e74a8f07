// All heads as a wall of small pictures; the chosen one large, row by row. Rows are unpacked when a head is chosen.
"use strict";

const FIGURES = [["entropy", "entropy, in bits"], ["keys", "effective keys"], ["self", "weight on itself"], ["previous", "weight on the one before"], ["first", "weight on the first"], ["distance", "mean distance"]];

const MOST_MORE = 24; // Of the weights beside the largest, so many are listed when they are asked for.

const MOST_STAGED = 1e6; // Weights that the page of one head has room for.

class Heads {
  constructor(data) {
    this.data = data;
    this.found = [];
    this.sort = "place";
  }

  build(root) {
    this.opened = new URLSearchParams(location.hash.replace(/^#/, ""));
    if (this.data.staged === undefined && DATA.blocks.every((block) => block.kind === "heads")) document.body.classList.add("only-heads");
    this.wall = el("div", { class: "wall", role: "group", "aria-label": "all heads" });
    this.wallNote = el("p", { class: "hint wall-note", role: "status" });
    this.title = el("h2", { class: "head-title" });
    this.sayLine = el("p", { class: "say", role: "status" });
    this.lines = svg("svg", { class: "reach", viewBox: "0 0 1000 90", preserveAspectRatio: "none", role: "img", "aria-label": "A line from the row to each of its largest keys" });
    this.list = el("ol", { class: "largest" });
    this.matrix = new Matrix(this.data, { point: (query, key) => this.point(query, key), leave: () => this.point(), choose: (query, key) => this.choose(query, key) });
    this.scale = el("div", { class: "scale" });
    this.block = el("section", { class: "heads-block" },
      el("div", { class: "wall-side card" }, el("div", { class: "wall-bar" }, el("h2", {}, this.counted()), this.sorter()), this.wall, this.wallNote),
      el("div", { class: "head-side" }, this.title, this.sayLine, this.lines,
        el("div", { class: "head-body" }, el("div", { class: "plot-side" }, this.tools(), this.matrix.node, this.scale), el("div", { class: "row-side card" }, this.list, this.about()))));
    root.append(this.block);
    this.drawWall();
    const again = () => { this.drawWall(); this.drawHead(); };
    new MutationObserver(again).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
    new ResizeObserver(() => this.matrix.draw()).observe(this.matrix.node);
    addEventListener("hashchange", () => this.recall());
    if (!this.recall()) this.pick(this.opening());
  }

  counted() {
    const count = this.data.heads.length;
    return count === 1 ? "One head" : `${count.toLocaleString("en")} heads`;
  }

  // The head that says most at a glance: with the most rows that have one of the telling words.
  opening() {
    const telling = this.data.words.map(([word], n) => (["induction", "previous-token", "local"].includes(word) ? n : -1)).filter((n) => n >= 0);
    const score = (head) => Math.max(...telling.map((n) => head.counts[n]));
    return this.data.heads.reduce((best, head, n) => (score(head) > score(this.data.heads[best]) ? n : best), 0);
  }

  called(head) {
    return head.at.map((at, n) => `${this.data.axes[n]} ${at}`).join(", ") || "the head";
  }

  // -------------------------------------------------------------------- wall

  sorter() {
    const rows = this.data.heads.reduce((sum, head) => sum + head.counts.reduce((a, b) => a + b, 0), 0);
    const given = this.data.words.map(([word], n) => [word, this.data.heads.reduce((sum, head) => sum + head.counts[n], 0), n]).filter(([, count]) => count > 0 && rows > 0);
    return el("label", { class: "field" }, "in order of ", el("select", { onchange: (event) => { this.sort = event.target.value; this.drawWall(); } },
      el("option", { value: "place" }, "their place"),
      el("optgroup", { label: "rows that are" }, given.map(([word, , n]) => el("option", { value: `word ${n}` }, word))),
      el("optgroup", { label: "figures, largest first" }, FIGURES.map(([, words], n) => el("option", { value: `figure ${n}` }, words)))));
  }

  order() {
    const [kind, number] = this.sort.split(" ");
    const value = { place: () => 0, word: (head) => head.counts[number], figure: (head) => head.figures[number] ?? -Infinity }[kind];
    return this.data.heads.map((head, n) => n).sort((a, b) => value(this.data.heads[b]) - value(this.data.heads[a]) || a - b);
  }

  drawWall() {
    const { shape, axes } = this.data;
    const isPlaced = this.sort === "place" && shape.length > 1 && shape.at(-2) > 1 && shape.at(-1) <= 32;
    this.wall.classList.toggle("placed", isPlaced);
    this.wall.style.setProperty("--across", isPlaced ? shape.at(-1) : 1);
    const colours = [ramp("--pos"), pixel(rgb(themeColour("--sunken")))];
    const tops = isPlaced ? [el("span", { class: "edge" }, `${axes.at(-1)} →`), ...Array.from({ length: shape.at(-1) }, (_, n) => el("span", { class: "edge" }, String(n)))] : [];
    this.cards = new Map();
    const parts = this.order().flatMap((n) => {
      const head = this.data.heads[n];
      const card = button([this.small(head, colours), isPlaced ? "" : el("span", {}, this.brief(head), this.sort === "place" ? "" : el("em", {}, ` ${this.sorted(head)}`))], {
        class: "small-head", "aria-label": `${isPlaced ? "" : `${this.brief(head)}${this.sort === "place" ? "" : ` ${this.sorted(head)}`}, `}${this.called(head)}: ${head.evidence}`, "aria-pressed": String(n === this.number), title: `${this.called(head)}\n${head.evidence}`,
        onpointerenter: () => this.note(head), onfocus: () => this.note(head), onpointerleave: () => this.note(),
      }, () => this.pick(n));
      this.cards.set(n, card);
      return isPlaced && head.at.at(-1) === 0 ? [el("span", { class: "edge" }, `${axes.at(-2)} ${head.at.slice(0, -1).join(", ")}`), card] : [card];
    });
    this.wall.replaceChildren(...tops, ...parts);
    this.note();
  }

  brief(head) {
    return head.at.join("·");
  }

  sorted(head) {
    const [kind, number] = this.sort.split(" ");
    return kind === "word" ? `${head.counts[number]} of ${this.data.queries}` : short(head.figures[number] ?? Number.NaN);
  }

  note(head = this.data.heads[this.number]) {
    this.wallNote.textContent = head === undefined ? "" : `${this.called(head)}: ${head.evidence}`;
  }

  small(head, [colours, paper]) {
    const [height, width] = [Math.min(56, this.data.queries), Math.min(56, this.data.keys)];
    const canvas = el("canvas", { width, height, "aria-hidden": "true" });
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    const out = new Uint32Array(image.data.buffer);
    const bytes = atob(head.picture);
    for (let at = 0; at < out.length; at += 1) out[at] = bytes.charCodeAt(at) === 0 ? paper : colours[Math.max(24, bytes.charCodeAt(at))];
    context.putImageData(image, 0, 0);
    return canvas;
  }

  // -------------------------------------------------------------------- head

  async pick(number, query, key) {
    this.number = number;
    for (const [n, card] of this.cards) card.setAttribute("aria-pressed", String(n === number));
    this.cards.get(number)?.scrollIntoView?.({ block: "nearest" });
    this.found[number] ??= unpacked(this.data, number);
    const head = await this.found[number];
    if (this.number !== number) return;
    this.head = head;
    this.isOpen = false;
    this.chosen = { query: query ?? this.chosen?.query ?? this.data.queries - 1, key };
    this.drawHead();
    this.remember();
    if (this.data.staged !== undefined) await this.drawStage(number);
  }

  // The program of this head, with its numbers, down to what was captured.
  async drawStage(number) {
    const text = document.getElementById(`stage-${number}`)?.textContent;
    const page = text === undefined ? null : JSON.parse(new TextDecoder().decode(await inflated(bytesOf(text))));
    if (this.number !== number) return;
    PAGES.length = 0;
    const entry = this.data.heads[number];
    const section = el("div", { class: "head-stage" }, el("h2", {}, `The arithmetic of ${this.called(entry)}`));
    if (page === null) section.append(this.leftOut(entry));
    if (this.stage === undefined) this.block.after(section);
    else this.stage.replaceWith(section);
    this.stage = section;
    if (page === null) return;
    programBlock({ pages: [page] }, section);
    const [staged] = PAGES;
    staged.link = (parts) => `#${[...this.place(), ...parts].join("&")}`;
    for (const [id, field] of [["forms", "form"], ["voices", "voice"]]) staged[field] = document.querySelector(`#${id} input:checked`).value;
    this.standStage();
    if (["step", "cell", "set"].some((key) => this.opened.has(key))) staged.recall(this.opened);
    this.opened = new URLSearchParams();
  }

  // Where the stage of a head is found that is not here: of a long text, that of some of its rows.
  leftOut(entry) {
    const isLong = this.data.queries * this.data.keys > MOST_STAGED;
    return el("p", { class: "hint" }, "It is left out of this page for its size; in Python, ", el("code", {}, `seen.stage(${[...entry.at, ...(isLong ? [`rows=[${this.chosen.query}]`] : [])].join(", ")})`), isLong ? " has that of the chosen row." : " has it.");
  }

  // The stage turns to the row and the key that are chosen here.
  standStage() {
    const { query, key = this.head.row(query)[0].key } = this.chosen;
    const [staged] = PAGES;
    if (this.stage === undefined || staged === undefined || staged.tables.get("weights").isMasked([query, key])) return;
    staged.stand("weights", [query, key]);
    staged.path = staged.standing();
    staged.redraw();
  }

  drawHead() {
    if (this.head === undefined) return;
    const entry = this.data.heads[this.number];
    this.title.replaceChildren(el("b", {}, this.called(entry)), " ", el("span", { class: "evidence" }, entry.evidence));
    this.note();
    this.matrix.chosen = this.chosen;
    this.matrix.show(this.head);
    this.drawScale();
    this.drawRow();
  }

  point(query, key) {
    this.pointed = query === undefined ? undefined : { query, key };
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.drawRow());
  }

  choose(query, key) {
    this.chosen = { query, key };
    this.matrix.chosen = this.chosen;
    this.matrix.reveal(query, key);
    this.drawRow();
    this.remember();
    this.standStage();
  }

  // --------------------------------------------------------------------- row

  token(at) {
    const token = this.data.tokens?.[at];
    return token === undefined ? String(at) : shown(token);
  }

  named(at, colour) {
    const number = this.data.tokens === null ? null : el("small", { class: "at" }, String(at));
    return el("b", { class: colour }, this.token(at), number);
  }

  // The weight of a key in a row: exactly, nearly, or at most so much.
  weightAt(query, key) {
    const { block } = this.data;
    const row = this.head.row(query);
    const found = row.find((entry) => entry.key === key);
    if (found !== undefined) return { weight: found.weight, how: "exact" };
    const cell = Math.floor(query / block) * this.head.columns + Math.floor(key / block);
    const code = this.head.codes[cell];
    if (code === 0) return { weight: 0, how: "exact" };
    if (code === 1) return { weight: Number.NaN, how: block === 1 ? "strange" : "block" };
    if (this.head.again !== null) return { weight: Math.min(this.head.again.row(query, this.head.totals[query])[key], row.at(-1)?.weight ?? 1), how: "again" };
    const scale = this.head.scales[Math.floor(query / block)];
    const weight = scale * 10 ** (((Math.max(code, this.data.least) - 255) / (255 - this.data.least)) * this.data.decades);
    if (block > 1) return { weight: Math.min(weight, row.at(-1)?.weight ?? weight), how: "most" };
    return { weight: Math.min(weight, row.at(-1)?.weight ?? weight), how: code < this.data.least ? "most" : "near" };
  }

  drawRow() {
    if (this.head === undefined) return;
    const { query, key } = this.pointed ?? this.chosen;
    const row = this.head.row(query).filter((entry) => entry.weight > 0);
    const total = this.head.totals[query];
    const rest = Math.max(0, total - row.reduce((sum, entry) => sum + entry.weight, 0));
    const isShared = Math.abs(total - 1) < 1e-2;
    const shares = isShared ? percents([...row.map((entry) => entry.weight / total), rest / total]) : [];
    const share = (entry, n) => (isShared ? `${shares[n]} %` : short(entry.weight));
    this.sayLine.replaceChildren(...this.sentence(query, key, row, share).flat(4));
    this.drawLines(query, row);
    const most = row[0]?.weight ?? 1;
    const others = this.head.heard[query] - row.length;
    const items = row.map((entry, n) => el("li", {}, button([el("span", { class: "c1" }, this.named(entry.key)), el("i", { style: `--part: ${(entry.weight / most).toFixed(4)}` }), el("b", {}, share(entry, n)), el("small", {}, amount(entry.weight))],
      { class: `key${entry.key === key ? " on" : ""}` }, () => this.choose(query, entry.key))));
    if (others > 0) items.push(this.othersView(others, rest, rest / most, isShared ? `${shares.at(-1)} %` : short(rest)));
    if (others > 0 && this.isOpen && this.head.again !== null) items.push(...this.moreView(query, key, row, most));
    this.list.replaceChildren(...items);
  }

  // The weights beside the largest, as one line; where they can be made again, it opens.
  othersView(others, rest, part, share) {
    const words = `${others.toLocaleString("en")} other${others === 1 ? "" : "s"}`;
    const parts = [el("span", {}, words), el("i", { style: `--part: ${Math.min(1, part).toFixed(4)}` }), el("b", {}, share), el("small", {}, amount(rest))];
    if (this.head.again === null) return el("li", {}, el("div", { class: "others" }, parts));
    return el("li", {}, button(parts, { class: "key others", "aria-expanded": String(this.isOpen), title: "the largest of them, made again from queries and keys" }, () => { this.isOpen = !this.isOpen; this.drawRow(); }));
  }

  // The largest of the others, made again from queries and keys.
  moreView(query, key, row, most) {
    const made = this.head.again.row(query, this.head.totals[query]);
    const known = new Set(row.map((entry) => entry.key));
    const found = [...made.keys()].filter((at) => made[at] > 0 && !known.has(at)).sort((a, b) => made[b] - made[a]).slice(0, MOST_MORE);
    return found.map((at) => el("li", {}, button([el("span", { class: "c1" }, this.named(at)), el("i", { style: `--part: ${(made[at] / most).toFixed(4)}` }), el("b", {}, ""), el("small", {}, `≈ ${amount(made[at])}`)],
      { class: `key more${at === key ? " on" : ""}` }, () => this.choose(query, at))));
  }

  sentence(query, key, row, share) {
    const { offset } = this.data;
    const who = this.named(query + offset, "c0");
    const word = this.data.words[this.head.words[query]][0];
    if (row.length === 0) return [who, " hears nobody", el("small", {}, `This row is ${word}.`)];
    const at = row.findIndex((entry) => entry.key === key);
    const whom = (found) => (found === query + offset && this.data.queries > 1 ? el("b", { class: "c1" }, "itself") : this.named(found, "c1"));
    const kept = el("small", {}, `As a row it is ${word}; its ${row.length === 1 ? "largest weight is" : `${row.length} largest weights are`} exact.`);
    if (at >= 0 || key === undefined) return [who, " takes ", el("b", {}, share(row[Math.max(0, at)], Math.max(0, at))), " from ", whom(row[Math.max(0, at)].key), kept];
    const { weight, how } = this.weightAt(query, key);
    const amount = { exact: "nothing", near: `about ${decimal(weight, 2)}`, again: weight === 0 ? "nothing" : `about ${decimal(weight, 3)}`, most: `at most ${decimal(weight, 2)}`, strange: "no number from 0 on", block: "what cannot be told here" }[how];
    return [who, " takes ", el("b", {}, amount), " from ", whom(key), kept];
  }

  drawLines(query, row) {
    const { keys, offset } = this.data;
    const x = (at) => ((at + 0.5) / keys) * 1000;
    const from = x(Math.min(query + offset, keys - 1));
    const most = row[0]?.weight ?? 1;
    const paths = row.map((entry) => {
      const to = x(entry.key);
      const high = 20 + 62 * Math.min(1, Math.abs(to - from) / 600);
      const d = Math.abs(to - from) < 1 ? `M${from - 4} 88C${from - 18} 56 ${from + 18} 56 ${from + 4} 88` : `M${from} 88C${from} ${88 - high} ${to} ${88 - high} ${to} 88`;
      return svg("path", { d, "stroke-width": (0.6 + 7 * (entry.weight / most)).toFixed(2), "vector-effect": "non-scaling-stroke" }, svg("title", {}, `${this.token(entry.key)}: ${decimal(entry.weight)}`));
    });
    this.lines.replaceChildren(svg("line", { x1: 0, x2: 1000, y1: 88, y2: 88 }), ...paths, svg("line", { class: "who", x1: from, x2: from, y1: 78, y2: 90 }));
  }

  // ------------------------------------------------------------------- tools

  tools() {
    const modes = el("fieldset", { class: "segments" }, el("legend", {}, "colour"), [["row", "by row"], ["log", "logarithmic"]].map(([mode, words]) => el("label", {}, el("input", { type: "radio", name: "shade", value: mode, checked: mode === "row", onchange: () => { this.matrix.mode = mode; this.drawHead(); } }), el("span", {}, words))));
    const zoom = [["+", 0.6, "nearer"], ["−", 1 / 0.6, "farther"]].map(([sign, by, words]) => button(sign, { class: "icon", "aria-label": words, title: `${words} (the wheel does it too)` }, () => this.matrix.zoom(by)));
    const all = button("all", { class: "plain", title: "the whole head" }, () => { this.matrix.whole(); this.matrix.draw(); });
    this.hits = el("span", { class: "hint", role: "status" });
    const field = el("input", { type: "search", class: "seek", placeholder: this.data.tokens === null ? "position" : "token or position", "aria-label": "search for a token or a position", oninput: () => this.search(field.value, 0), onkeydown: (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.search(field.value, event.shiftKey ? -1 : 1);
    } });
    return el("div", { class: "tools" }, modes, ...zoom, all, field, button("›", { class: "icon", "aria-label": "the next one that is found" }, () => this.search(field.value, 1)), this.hits);
  }

  // Tokens that contain the text, or the position of that number; each Enter goes to the next one.
  search(text, step) {
    const wanted = text.trim().toLowerCase();
    const tokens = this.data.tokens ?? [];
    const isNumber = /^\d+$/.test(wanted) && Number(wanted) < this.data.keys;
    const found = wanted === "" ? [] : tokens.flatMap((token, at) => (shown(token).toLowerCase().includes(wanted) || token.toLowerCase().includes(wanted) ? [at] : []));
    if (found.length === 0 && isNumber) found.push(Number(wanted));
    this.matrix.marks = found;
    this.hits.textContent = wanted === "" ? "" : found.length === 0 ? "none" : `${found.length} found`;
    const now = this.chosen.query + this.data.offset;
    const next = step === 0 ? undefined : step > 0 ? found.find((at) => at > now) ?? found[0] : [...found].reverse().find((at) => at < now) ?? found.at(-1);
    if (next === undefined || next - this.data.offset < 0 || next - this.data.offset >= this.data.queries) this.matrix.draw();
    else this.choose(next - this.data.offset, undefined);
  }

  drawScale() {
    const { decades } = this.data;
    const isLog = this.matrix.mode === "log";
    const words = isLog ? Array.from({ length: decades / 2 + 1 }, (_, n) => (n === decades / 2 ? "1" : `10⁻${"⁰¹²³⁴⁵⁶⁷⁸⁹"[decades - 2 * n]}`)) : ["0", "half", "the largest of its row"];
    this.scale.replaceChildren(el("i", { class: "nobody" }), el("span", {}, "not heard"), el("div", {}, el("i", { class: "ramp" }), el("p", {}, words.map((word) => el("span", {}, word)))));
  }

  // What is approximate, and how words are decided.
  about() {
    const { block, top, queries, keys, words, decades } = this.data;
    const most = Math.round(100 * (10 ** (decades / (255 - this.data.least) / 2) - 1) * 10) / 10;
    const made = (this.data.again?.heads ?? []).filter((entry) => entry !== null);
    const missing = this.data.heads.length - made.length;
    const [usual, far] = [0, 1].map((n) => decimal(100 * Math.max(0, ...made.map((entry) => entry.errors[n])), 2));
    const cells = block === 1
      ? `kept in 8 bits, by the logarithm: within ${most} % of itself, down to a millionth of its row's largest. Below that it is only known to be there.`
      : `only known to be at most the largest of its ${block} × ${block} weights, which is within ${most} %.`;
    const again = `made again when it is asked for, from queries and keys that are kept in steps: off by ${usual} % of itself on the whole and by ${far} % at most, as measured on ${Math.min(this.data.again?.checked, queries)} rows of each head. Colours are coarser${block === 1 ? "" : `: from afar, a cell of the picture shows the largest of ${block} × ${block} weights`}.`;
    const others = made.length === 0 ? `Every other weight is ${cells}` : `Any other weight is ${again}${missing === 0 ? "" : ` Of ${missing} of the heads there are no such queries and keys, for lack of room or since something is added to their scores: there, every other weight is ${cells}`}`;
    const used = words.filter((_, n) => this.data.heads.some((head) => head.counts[n] > 0));
    return el("div", { class: "about" },
      el("details", { open: true }, el("summary", {}, "What is exact"), el("p", {}, `Of each row, the ${top} largest weights and the sum are exact (single precision), and so is where nothing is heard${block === 1 ? "" : " in a whole block"}. ${others}`), (this.data.said ?? []).map((line) => el("p", {}, line)), el("p", {}, `${queries.toLocaleString("en")} queries × ${keys.toLocaleString("en")} keys.`)),
      el("details", {}, el("summary", {}, "How words are decided"), el("dl", {}, used.flatMap(([word, meaning]) => [el("dt", {}, word), el("dd", {}, meaning)])), el("p", {}, "The first that holds is the word of a row; a head is said to have as many rows of a word as are counted. Words are about numbers, not about what a model does with them.")));
  }

  // ------------------------------------------------------------------- links

  place() {
    const { at } = this.data.heads[this.number];
    return [`head=${at.join(",")}`, `row=${this.chosen.query}`, ...(this.chosen.key === undefined ? [] : [`key=${this.chosen.key}`])];
  }

  remember() {
    try {
      history.replaceState(null, "", `#${this.place().join("&")}`);
    } catch {
      // A browser may allow only so many in a while; then the address lags behind.
    }
  }

  recall() {
    const found = new URLSearchParams(location.hash.replace(/^#/, ""));
    const number = this.data.heads.findIndex((head) => head.at.join(",") === found.get("head"));
    if (number < 0) return false;
    const at = (name, most) => (/^\d+$/.test(found.get(name) ?? "") && Number(found.get(name)) < most ? Number(found.get(name)) : undefined);
    this.pick(number, at("row", this.data.queries), at("key", this.data.keys));
    return true;
  }
}

const amount = (weight) => (weight !== 0 && weight < 1e-3 ? weight.toExponential(1).replace("e-", "e−") : weight.toFixed(4));

// The rows and the picture of a head, from what is attached to the page.
async function unpacked(data, number) {
  const { queries, keys, top, block } = data;
  const bytes = bytesOf(document.getElementById(`head-${number}`).textContent);
  const split = 4 + new DataView(bytes.buffer).getUint32(0, true);
  const [rows, codes, again] = await Promise.all([inflated(bytes.subarray(4, split)), inflated(bytes.subarray(split)), remadeOf(data, number)]);
  let at = 0;
  const part = (Type, count) => { at += count * Type.BYTES_PER_ELEMENT; return new Type(rows.buffer.slice(at - count * Type.BYTES_PER_ELEMENT, at)); };
  const totals = part(Float32Array, queries);
  const heard = part(Uint32Array, queries);
  const weights = part(Float32Array, queries * top);
  const places = part(keys > 65536 ? Uint32Array : Uint16Array, queries * top);
  const words = part(Uint8Array, queries);
  const columns = Math.ceil(keys / block);
  const scales = new Float32Array(Math.ceil(queries / block));
  for (let query = 0; query < queries; query += 1) scales[Math.floor(query / block)] = Math.max(scales[Math.floor(query / block)], weights[query * top]);
  const row = (query) => Array.from({ length: top }, (_, n) => ({ key: places[query * top + n], weight: weights[query * top + n] }));
  return { totals, heard, words, columns, scales, codes, row, again };
}

function bytesOf(text) {
  if (Uint8Array.fromBase64 !== undefined) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at += 1) bytes[at] = letters.charCodeAt(at);
  return bytes;
}

async function inflated(bytes) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer());
}
