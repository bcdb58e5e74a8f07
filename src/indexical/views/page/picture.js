// The picture that a page opens on: who listens to whom, or which tensor reads which; and the strip of heads.
"use strict";

const TALL = 132; // Of the arcs, in pixels.

// How much a line weighs: a weight below 0 takes away as much as it would bring.
const sizeOf = (entry) => (Number.isFinite(entry.strength) ? Math.abs(entry.strength) : 0);

Object.assign(Page.prototype, {
  heroView() {
    this.sayLine = el("p", { class: "say", role: "status" });
    this.picture = el("div", { class: "picture" });
    this.ways = el("div", { class: "ways" });
    this.kicker = el("h2", { class: "kicker" });
    this.hero = el("section", { class: "hero" }, this.kicker, this.sayLine, this.picture, this.ways);
    return this.hero;
  },

  drawHero() {
    this.hero.setAttribute("aria-label", this.landmark(this.gather === undefined ? "Which tensor reads which" : "Who listens to whom"));
    this.kicker.textContent = this.gather === undefined ? "What is made of what" : "Who listens to whom";
    this.pictureKey = undefined;
    this.drawPicture();
    this.drawWays();
  },

  // The query and the key that are pointed at, else those that are chosen.
  shownPair() {
    const { gather } = this;
    const [query, key] = [bare(gather.query), bare(gather.key)];
    const last = this.queriesOf(gather) - 1;
    const asks = bounded(this.pointed?.[query] ?? this.here[query] ?? last, 0, last);
    const isOther = this.pointed?.[query] !== undefined && this.pointed[query] !== this.here[query];
    return [asks, this.pointed?.[key] ?? (isOther ? undefined : this.here[key])];
  },

  drawPicture() {
    const { gather } = this;
    if (gather === undefined) {
      this.drawReading();
      return;
    }
    if (this.queriesOf(gather) === 0) {
      this.sayLine.replaceChildren("Nobody listens", el("small", {}, "There is no ", this.noun(gather.query), " that could."));
      return;
    }
    const [query, key] = this.shownPair();
    const id = [gather.definition, query, key, this.by, this.voice, this.form, ...Object.values(this.apartOf(gather)), this.version ?? 0, this.picture.clientWidth].join(" ");
    if (id === this.pictureKey) return;
    this.pictureKey = id;
    const most = bounded(Math.floor((this.picture.clientWidth || 600) / 46), 5, 14);
    const heard = this.heard(gather, query);
    const isOn = heard.some((entry) => entry.key === key);
    this.sayLine.replaceChildren(...this.sentence(gather, query, isOn || this.pointed?.[bare(gather.key)] !== undefined ? key : undefined).flat(4));
    const focused = this.picture.contains(document.activeElement) ? document.activeElement.dataset.token : undefined;
    const isSelf = this.isSelf(gather);
    const keys = this.shownKeys(gather, query, heard, most, isSelf);
    const queries = isSelf ? keys : windowOf(this.queriesOf(gather), most, query);
    this.picture.replaceChildren(this.arcs(gather, query, key, keys, queries, isSelf), ...(isSelf ? [] : [this.tokens(gather, queries, query, null, true)]), this.tokens(gather, keys, query, heard, false, isSelf));
    if (focused !== undefined) this.picture.querySelector(`[data-token="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  },

  // All keys where there is room; else the strongest ones of this query, in order, and the query itself.
  shownKeys(gather, query, heard, most, isSelf) {
    const count = Math.max(isSelf ? this.queriesOf(gather) : 0, this.keysOf(gather, this.queriesOf(gather) - 1)[1]);
    if (count <= most) return Array.from({ length: count }, (_, n) => n);
    const top = [...heard].sort((a, b) => sizeOf(b) - sizeOf(a)).slice(0, Math.min(8, most - 1)).map((entry) => entry.key);
    return [...new Set([...top, ...(isSelf ? [query] : [])])].sort((a, b) => a - b);
  },

  arcs(gather, query, key, keys, queries, isSelf) {
    const x = (list, at) => ((list.indexOf(at) + 0.5) / list.length) * 1000;
    const base = TALL;
    const path = (from, to) => {
      if (!isSelf) return `M${x(queries, from)} 26C${x(queries, from)} ${base * 0.6} ${x(keys, to)} ${base * 0.45} ${x(keys, to)} ${base}`;
      if (from === to) return `M${x(keys, from) - 6} ${base}C${x(keys, from) - 34} ${base - 46} ${x(keys, from) + 34} ${base - 46} ${x(keys, from) + 6} ${base}`;
      const far = Math.abs(keys.indexOf(from) - keys.indexOf(to)) / Math.max(1, keys.length - 1);
      const high = Math.min(base * 1.28, base * (0.42 + far));
      return `M${x(keys, from)} ${base}C${x(keys, from)} ${base - high} ${x(keys, to)} ${base - high} ${x(keys, to)} ${base}`;
    };
    const isEveryone = queries.length * keys.length <= 200 && queries.length === this.queriesOf(gather);
    const rows = (isEveryone ? queries : [query]).map((from) => [from, this.heard(gather, from).filter((entry) => keys.includes(entry.key))]);
    const most = Math.max(...rows.flatMap(([, heard]) => heard.map(sizeOf))) || 1;
    const [ask, answer] = [this.colours.get(bare(gather.query)), this.colours.get(bare(gather.key))];
    const lines = rows.flatMap(([from, heard]) => heard.map((entry) => {
      const isOn = from === query;
      const part = Number.isFinite(entry.strength) ? sizeOf(entry) / most : 0.15;
      const words = `${this.called(gather.query, from)} hears ${this.called(gather.key, entry.key)}: ${Number.isFinite(entry.strength) ? decimal(entry.strength) : "not known"}`;
      const stroke = isOn ? (isSelf && from === entry.key ? `var(--c${ask})` : `url(#arc-${this.number}-${isSelf ? entry.key : "down"})`) : null;
      const line = svg("path", {
        d: path(from, entry.key), class: `arc${isOn ? " on" : ""}${isOn && key !== undefined && key !== entry.key ? " thin" : ""}${Number.isFinite(entry.strength) ? (entry.strength < 0 ? " takes" : "") : " unknown"}`,
        "stroke-width": (1 + 12 * part).toFixed(2), "vector-effect": "non-scaling-stroke", "data-query": from, "data-key": entry.key, "data-strength": entry.strength,
        style: stroke === null ? null : `stroke: ${stroke}`, onclick: () => this.selectWeight(gather, from, entry.key),
      }, svg("title", {}, words));
      return this.linked(line, { [bare(gather.query)]: from, [bare(gather.key)]: entry.key });
    }));
    lines.sort((a, b) => Number(a.classList.contains("on")) - Number(b.classList.contains("on")));
    // From the hue of who listens to the hue of who is heard, from end to end of each line.
    const gradient = (id, x1, x2, y1, y2) => svg("linearGradient", { id: `arc-${this.number}-${id}`, gradientUnits: "userSpaceOnUse", x1, x2, y1, y2 }, svg("stop", { offset: "0.1", "stop-color": `var(--c${ask})` }), svg("stop", { offset: "0.9", "stop-color": `var(--c${answer})` }));
    const gradients = isSelf ? keys.filter((at) => at !== query).map((at) => gradient(at, x(keys, query), x(keys, at), 0, 0)) : [gradient("down", 0, 0, 0, base)];
    return svg("svg", { class: "arcs", viewBox: `0 0 1000 ${TALL}`, preserveAspectRatio: "none", role: "img", "aria-label": "A line from each that listens to each that it hears; the sentence above says it in words" },
      svg("defs", {}, gradients), lines);
  },

  // A row of tokens; with `heard`, what the query takes from each of them.
  tokens(gather, list, query, heard, isTop, isSelf = false) {
    const name = isTop || isSelf ? gather.query : gather.key;
    const size = list.length <= 6 ? "large" : list.length <= 9 ? "middle" : "small";
    const top = heard === null ? 0 : Math.max(...heard.map(sizeOf));
    return el("div", { class: `tokens ${size}${isTop ? " top" : ""}`, style: `--count: ${list.length}`, role: "group", "aria-label": isTop || isSelf ? "who listens" : "who is heard" }, list.map((at, n) => {
      const entry = heard?.find((found) => found.key === at);
      const isGap = n > 0 && list[n - 1] !== at - 1;
      const token = this.linked(button(this.called(name, at), {
        class: `token${at === query && (isTop || isSelf) ? " on" : heard !== null && entry === undefined ? " off" : ""}`, "data-token": `${name} ${at}`, title: `${bare(name)} = ${at}`, "aria-pressed": isTop || isSelf ? String(at === query) : null,
      }, () => (isTop || isSelf ? this.ask(gather, at) : this.selectWeight(gather, query, at))), { [bare(name)]: at });
      return el("div", { class: isGap ? "seat gap" : "seat" }, token, heard === null ? null : this.shareOfKey(gather, query, at, entry, top));
    }));
  },

  shareOfKey(gather, query, key, entry, top) {
    const point = { [bare(gather.query)]: query, [bare(gather.key)]: key };
    if (entry === undefined) return this.linked(el("span", { class: "taken absent" }, el("i", {}), el("span", {}, this.voice === "plain" ? (this.isSelf(gather) && key > query ? "not yet said" : "not heard") : "masked")), point);
    const isShare = entry.percent !== undefined && this.voice === "plain" && this.by === "weight";
    const text = !Number.isFinite(entry.strength) ? "?" : isShare ? `${entry.percent} %` : short(entry.strength);
    const part = sizeOf(entry) / (top || 1);
    return this.linked(el("span", { class: `taken${sizeOf(entry) === top ? " best" : ""}`, "data-key": key }, el("i", { style: `--size: ${part.toFixed(3)}` }), el("b", {}, text)), point);
  },

  // Another query asks: of its keys, the one that it hears most is chosen.
  ask(gather, query) {
    this.here[bare(gather.query)] = query;
    const best = this.strongest(gather);
    this.selectWeight(gather, query, best[bare(gather.key)] ?? 0);
  },

  selectWeight(gather, query, key) {
    const point = { ...this.apartOf(gather), [gather.query]: query, [gather.key]: key };
    if (gather.tensor === null) this.turn({ [bare(gather.query)]: query, [bare(gather.key)]: key });
    else this.select(gather.tensor.name, gather.tensor.coordinates.map((name) => point[name] ?? 0), true);
  },

  // -------------------------------------------------------------------- ways

  drawWays() {
    const { gather } = this;
    if (gather === undefined) {
      this.ways.replaceChildren();
      return;
    }
    const focused = this.ways.contains(document.activeElement) ? document.activeElement.dataset.control : undefined;
    const kinds = [["weight", this.voice === "plain" ? "share" : "weight"], ["carried", this.voice === "plain" ? "what arrives" : "‖w·V‖"]];
    if (gather.after !== null) kinds.push(["after", `after ${gather.after.matrix[1]}`]);
    const way = el("fieldset", { class: "segments" }, el("legend", {}, "lines as thick as"), kinds.map(([key, words]) => el("label", {}, el("input", {
      type: "radio", name: `by-${this.number}`, value: key, checked: key === this.by, "data-control": key, onchange: () => { this.by = key; this.drawHero(); },
    }), el("span", {}, words))));
    const others = this.data.communication.length > 1 ? el("label", { class: "field" }, "of ", el("select", { "data-control": "gather", onchange: (event) => {
      this.gather = this.data.communication[Number(event.target.value)];
      this.parts = partsOf(this);
      this.redraw();
    } }, this.data.communication.map((entry, n) => el("option", { value: String(n), selected: entry === gather }, entry.definition)))) : null;
    const count = this.queriesOf(gather);
    const who = count > 14 ? el("label", { class: "field" }, `${bare(gather.query)} = `, el("input", { type: "number", min: "0", max: String(count - 1), value: String(this.here[bare(gather.query)] ?? 0), "data-control": "asks", onchange: (event) => this.ask(gather, bounded(Math.trunc(Number(event.target.value)) || 0, 0, count - 1)) })) : null;
    this.ways.replaceChildren(...[others, who, this.headsView(gather), way].filter((part) => part !== null));
    if (focused !== undefined) this.ways.querySelector(`[data-control="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  },

  // Every head: a small picture, and the words for most of its rows, counted.
  headsView(gather) {
    if (gather.heads.length < 2) return null;
    const table = this.tables.get(gather.tensor.name);
    const { query, key, coordinates } = gather.tensor;
    const isMatrix = query === coordinates.length - 2 && key === coordinates.length - 1;
    const apart = this.apartOf(gather);
    const sizes = Object.fromEntries(coordinates.map((name, n) => [name, table.shape[n]]));
    const named = (head) => Object.entries(head.at).filter(([name]) => sizes[name] > 1).map(([name, at]) => `${this.noun(name)} ${this.called(name, at)}`).join(", ");
    const isNow = (head) => Object.entries(head.at).every(([name, at]) => apart[name] === at);
    const list = el("div", { class: `heads${gather.heads.length > 4 ? " many" : ""}`, role: "group", "aria-label": "heads" }, gather.heads.map((head) => button(
      [isMatrix ? thumbnail(table, Object.values(head.at), 40) : "", el("span", {}, el("b", {}, named(head)), el("em", {}, this.headWords(gather, head)))],
      { class: "head-card", "data-control": named(head), "aria-pressed": String(isNow(head)) }, () => this.turn(Object.fromEntries(Object.entries(head.at).map(([name, at]) => [bare(name), at]))))));
    list.querySelector("[aria-pressed=true]")?.setAttribute("data-now", "");
    return list;
  },

  headWords(gather, head) {
    const rows = Object.values(head.at).reduce((words, at) => words?.[at], gather.words);
    if (!Array.isArray(rows)) return head.word ?? "mixed";
    const counts = new Map();
    for (const word of rows.filter((found) => found)) counts.set(word, (counts.get(word) ?? 0) + 1);
    // The most common words and the next: all of them where several are equally common.
    const ranked = [...counts].sort((a, b) => b[1] - a[1]);
    const top = ranked.filter(([, count]) => count >= (ranked[1]?.[1] ?? 0));
    return top.length === 0 ? "mixed" : top.map(([word, count]) => `${word}: ${count} of ${rows.length}`).join("\n");
  },

  // --------------------------------------------------------------- who reads

  madeHow(step) {
    if (step === undefined) return " is given";
    const gloss = this.voice === "plain" ? this.gloss(this.scene) : "";
    return gloss === "" ? " is computed" : gloss.startsWith("reads") ? ` ${gloss}` : gloss === "number by number" ? " is computed number by number" : ` is ${gloss}`;
  },

  // Without a gather: the tensors in order, and a line from each that is read to each that reads it.
  drawReading() {
    const scenes = this.data.tensors.filter((tensor) => !tensor.hidden).map((tensor) => tensor.name);
    const edges = this.steps.filter((step) => step.inside === null).flatMap((step) => step.reads.filter((name) => scenes.includes(name)).map((name) => [name, step.name]));
    const near = new Set([this.scene, ...edges.filter((edge) => edge.includes(this.scene)).flat()]);
    const most = bounded(Math.floor((this.picture.clientWidth || 600) / 58), 5, 14);
    const order = [...scenes.filter((name) => !this.steps.some((step) => step.name === name)), ...this.steps.filter((step) => step.inside === null).map((step) => step.name)];
    const shown = order.length <= most ? order : order.filter((name) => near.has(name)).slice(0, most);
    const id = [this.scene, this.voice, shown, this.version ?? 0, ...Object.values(this.here)].join(" ");
    if (id === this.pictureKey) return;
    this.pictureKey = id;
    const x = (name) => ((shown.indexOf(name) + 0.5) / shown.length) * 1000;
    const lines = edges.filter((edge) => edge.every((name) => shown.includes(name))).map(([from, to]) => {
      const far = Math.abs(shown.indexOf(from) - shown.indexOf(to)) / Math.max(1, shown.length - 1);
      const high = Math.min(TALL * 1.25, TALL * (0.4 + far));
      const d = from === to ? `M${x(from) - 8} ${TALL}C${x(from) - 40} ${TALL - 60} ${x(from) + 40} ${TALL - 60} ${x(from) + 8} ${TALL}` : `M${x(from)} ${TALL}C${x(from)} ${TALL - high} ${x(to)} ${TALL - high} ${x(to)} ${TALL}`;
      return svg("path", { d, class: `arc${to === this.scene ? " on reads" : ""}`, "stroke-width": 3, "vector-effect": "non-scaling-stroke" }, svg("title", {}, `${to} reads ${from}`));
    });
    const seats = shown.map((name) => el("div", { class: "seat" }, button([thumbnail(this.tables.get(name), this.placeOn(name).slice(0, -2), 34), el("span", {}, name)], { class: `token tensor-token${name === this.scene ? " on" : ""}`, "data-token": name }, () => this.go(name))));
    const step = this.steps.find((entry) => entry.name === this.scene);
    const reads = [...new Set(step?.reads ?? [])].filter((name) => name !== this.scene);
    this.sayLine.replaceChildren(...(this.scene === undefined ? [] : [el("b", {}, this.scene), this.madeHow(step),
      el("small", {}, reads.length ? ["It reads ", joined(reads.slice(0, 6).map((name) => el("b", {}, name))), ". "] : "", el("span", { class: "spare" }, "Play the steps, or point at any number."))]));
    this.picture.replaceChildren(svg("svg", { class: "arcs", viewBox: `0 0 1000 ${TALL}`, preserveAspectRatio: "none", role: "img", "aria-label": "A line from each tensor to those that read it" }, lines), el("div", { class: "tokens small", style: `--count: ${shown.length}` }, seats));
  },
});
