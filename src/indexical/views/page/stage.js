// The stage: one relation at a time. Operands, the working and the result side by side; the strip of all tensors; time.
"use strict";

Object.assign(Page.prototype, {
  stageView() {
    this.strip = el("div", { class: "strip", role: "group", "aria-label": "All tensors, in the order of the program" });
    this.slider = el("input", { type: "range", min: "0", step: "0.01", "aria-label": "time", oninput: (event) => this.seek(Number(event.target.value)) });
    this.track = el("div", { class: "track", "aria-hidden": "true" });
    this.beatBar = el("div", { class: "beats", role: "group", "aria-label": "Beats of this step" });
    this.caption = el("p", { class: "caption", role: "status" });
    this.zones = el("div", { class: "zones" });
    const press = (text, words, act, kind = "icon") => button(text, { class: kind, "aria-label": words, title: words }, act);
    this.playButton = press("▶", "play the steps", () => this.play(), "icon play");
    this.rail = el("div", { class: "rail" },
      el("div", { class: "controls" }, this.playButton, press("‹", "one beat back", () => this.nudge(-1)), press("›", "one beat on", () => this.nudge(1))),
      this.strip, el("div", { class: "time" }, this.track, this.slider), this.beatBar);
    this.why = el("p", { class: "why-not-exact" });
    this.sayWhy();
    this.stage = el("section", { class: "stage card", "aria-label": this.landmark("The stage") }, this.rail, el("div", { class: "caption-row" }, this.caption), this.zones, this.why);
    return this.stage;
  },

  sayWhy() {
    this.why.hidden = !this.data.whyNotExact;
    this.why.replaceChildren("Decimals only: ", ...this.coded(this.data.whyNotExact ?? ""), ".");
  },

  // ------------------------------------------------------------------- strip

  // Every tensor is one click away: inputs and definitions, what functions brought along in small.
  drawStrip() {
    const shown = this.data.tensors.filter((tensor) => !tensor.hidden || tensor.role === "definition");
    const order = [...shown.filter((tensor) => !this.steps.some((step) => step.name === tensor.name)).map((tensor) => tensor.name), ...this.steps.map((step) => step.name)];
    const reads = new Set(this.operandsOf(this.scene).map((operand) => operand.name));
    this.strip.replaceChildren(...order.map((name) => {
      const step = this.steps.find((entry) => entry.name === name);
      const kind = step === undefined ? "given" : step.inside === null ? "step" : "step inside";
      return button([thumbnail(this.tables.get(name), this.placeOn(name).slice(0, -2)), el("span", {}, el("b", {}, name), step === undefined ? null : el("em", {}, this.gloss(name)))], {
        class: `scene ${kind}${reads.has(name) ? " read" : ""}`, "data-scene": name, "aria-current": name === this.scene ? "step" : null, title: step?.inside ? `${name}: inside ${step.inside}` : label(name, this.tables.get(name).tensor.coordinates),
      }, () => this.go(name));
    }));
    this.strip.classList.remove("tight");
    this.strip.classList.toggle("tight", this.strip.scrollWidth > this.strip.clientWidth + 1);
    const now = this.strip.querySelector("[aria-current]");
    if (now !== null) this.strip.scrollLeft = Math.max(0, now.offsetLeft - this.strip.offsetLeft - this.strip.clientWidth / 2 + now.offsetWidth / 2);
  },

  // ------------------------------------------------------------------- zones

  // What a definition reads where it stands now: tensors, the names of their axes there, and the cells that take part.
  operandsOf(name) {
    if (name === undefined || this.data.relation[name] === undefined) return [];
    const place = this.placeOn(name);
    const trace = this.traceAt(name, place);
    if (trace.clause === null) return [];
    const sources = this.relation.sources(trace);
    const found = new Map();
    const all = readsIn(trace.clause.body);
    for (const read of all) {
      const others = new Set(all.filter((other) => other[1] === read[1]).map((other) => other[3])).size;
      const as = coordinatesOf(read);
      if (!this.tables.has(read[1])) continue;
      const key = as.includes(null) ? read[1] : `${read[1]} ${as}`;
      if (found.has(key) || (as.includes(null) && [...found.values()].some((operand) => operand.name === read[1]))) continue;
      const free = new Set(trace.scans.flatMap((scan) => scan.names.map(bare)));
      const fits = (at) => as.every((axis, n) => axis === null || free.has(axis) || trace.point[axis] === undefined || trace.point[axis] === at[n]);
      const cells = sources.filter((source) => source.name === read[1] && (as.includes(null) || fits(source.place))).map((source) => source.place);
      const texts = read[2].map((index, n) => (as[n] === null && others === 1 ? textOf(index) : null));
      found.set(key, { name: read[1], as, cells, texts });
    }
    const operands = [...found.values()];
    const reached = operands.filter((operand) => operand.cells.length > 0 || operands.length <= 2);
    return reached.length ? reached : operands;
  },

  isOnStage(name) {
    return name === this.scene || this.operandsOf(this.scene).some((operand) => operand.name === name);
  },

  drawStage() {
    if (this.scene === undefined) {
      this.zones.replaceChildren(el("p", { class: "hint" }, "There is nothing to compute."));
      return;
    }
    const focused = this.focusAfter ?? (this.zones.contains(document.activeElement) ? document.activeElement.dataset.cell : undefined);
    this.focusAfter = undefined;
    const name = this.scene;
    const place = this.placeOn(name);
    const all = this.operandsOf(name);
    const operands = all.filter((operand) => operand.name !== name);
    const itself = all.find((operand) => operand.name === name);
    const known = this.tightness.get(name) ?? 0;
    const tight = Math.max(0, known);
    const rooms = roomsFor(operands.map((operand) => matrixOf(this.tables.get(operand.name))), matrixOf(this.tables.get(name)), tight);
    const views = operands.map((operand, n) => this.operandView({ ...operand, hasHeat: operands.length === 1 && tight === 0 }, rooms.operands[n]));
    const table = this.tables.get(name);
    const result = this.tensorView({ name, as: this.axesOf(name), place, parts: itself === undefined ? null : new Set([...itself.cells, place].map((at) => table.offset(at))), room: rooms.result, isResult: true, hasHeat: tight < 3 });
    const trace = this.data.relation[name] === undefined ? null : this.traceAt(name, place);
    this.work = el("div", { class: "work" }, this.isEmpty(name) ? el("p", { class: "hint" }, "No points: nothing is computed.") : trace === null ? el("p", { class: "hint" }, this.isOpen(name) ? "Given. Drag a number sideways or type on it: everything follows." : "Given, not computed.") : this.workView(trace));
    this.zones.className = `zones of-${Math.min(4, views.length)} ${views.length > 5 ? "of-many" : ""} ${trace === null || this.steps.every((step) => step.name !== name) ? "alone" : ""}`;
    this.zones.replaceChildren(...(views.length ? [el("div", { class: "operands", role: "group", "aria-label": "What it reads" }, views)] : []), this.work, el("div", { class: "outcome", role: "group", "aria-label": "The result" }, result));
    if (known >= 0 && this.isTooTall()) {
      this.tightness.set(name, tight < 4 ? tight + 1 : -1); // A screen that is too low for the least has it all.
      this.focusAfter = focused;
      this.drawStage();
      return;
    }
    this.drawTime();
    if (focused !== undefined) this.zones.querySelector(`[data-cell="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  },

  // Whether picture and stage do not fit on a screen together, where they should: then fewer rows are shown.
  isTooTall() {
    if (!matchMedia("(min-width: 1260px)").matches || this.mates.length > 0) return false;
    const rem = Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
    return this.stage.getBoundingClientRect().bottom - this.root.getBoundingClientRect().top > innerHeight - 4.7 * rem;
  },

  // An operand, turned to the cells that are read.
  operandView({ name, as, cells, texts, hasHeat }, room) {
    const table = this.tables.get(name);
    const asked = this.path.at(-1);
    const stands = this.placeOn(name);
    const near = cells.find((at) => String(at) === String(stands)) ?? cells.find((at) => at.slice(0, -2).every((n, axis) => n === stands[axis])) ?? cells[0] ?? stands;
    const chosen = asked?.name === name ? asked.place : near;
    const view = this.tensorView({ name, as, texts, cells, hasHeat, place: chosen, parts: new Set(cells.map((at) => table.offset(at))), room, isResult: false });
    if (asked?.name === name) view.querySelector(`[data-cell="${CSS.escape(label(name, asked.place))}"]`)?.classList.add("chosen");
    return view;
  },

  // -------------------------------------------------------------------- time

  beats() {
    const trace = this.data.relation[this.scene] === undefined ? null : this.traceAt(this.scene, this.placeOn(this.scene));
    return trace === null ? [] : this.beatsOf(trace);
  },

  drawTime() {
    const beats = this.beats();
    const at = this.steps.findIndex((step) => step.name === this.scene);
    this.slider.max = String(Math.max(1, this.steps.length));
    this.slider.disabled = this.steps.length === 0;
    this.track.replaceChildren(...this.steps.map((step, n) => el("i", { class: step.inside === null ? "" : "inside", style: `--done: ${n < at ? 100 : 0}%` })));
    this.beatBar.replaceChildren(...beats.map((beat, n) => button(this.voice === "plain" ? beat.word : beat.sign, { "data-beat": n }, () => this.seekBeat(n + 1))));
    this.showBeat();
  },

  // The stage at this time: everything that follows from `beat` alone.
  showBeat() {
    const beats = this.beats();
    const at = this.steps.findIndex((step) => step.name === this.scene);
    const done = beats.length ? this.beat / beats.length : 1;
    if (at >= 0) {
      this.slider.value = String(at + done);
      this.slider.setAttribute("aria-valuetext", `step ${at + 1} of ${this.steps.length}: ${this.scene}, ${beats[Math.max(0, Math.ceil(this.beat) - 1)]?.word ?? ""}`);
      this.track.children[at]?.style.setProperty("--done", `${100 * done}%`);
    }
    const now = Math.max(0, Math.ceil(this.beat - 1e-6) - 1);
    for (const node of this.beatBar.children) {
      const isNow = Number(node.dataset.beat) === now;
      node.classList.toggle("on", isNow);
      if (isNow) node.setAttribute("aria-current", "true");
      else node.removeAttribute("aria-current");
    }
    const said = this.scene === undefined || this.data.relation[this.scene] === undefined ? this.givenCaption() : this.say(this.traceAt(this.scene, this.placeOn(this.scene)), beats, now);
    const key = `${this.scene} ${now} ${this.voice} ${this.form} ${this.placeOn(this.scene ?? "") ?? ""} ${this.version ?? 0}`;
    if (key !== this.captionKey) this.caption.replaceChildren(...said.flat(3));
    this.captionKey = key;
    this.stageMotion(beats.length);
  },

  givenCaption() {
    const tensor = this.tables.get(this.scene)?.tensor;
    if (tensor === undefined) return [];
    return [el("b", {}, this.scene), tensor.role === "input" ? " is an input. " : " is given in the text. ", this.explanation(this.scene) ?? ""];
  },

  // Bring what was stepped to into view, where the page is longer than the screen; the sheet does not cover it.
  reveal() {
    const cell = this.zones.querySelector(".chosen") ?? this.zones;
    const box = cell.getBoundingClientRect();
    const sheet = this.panel.getBoundingClientRect();
    const isSheet = getComputedStyle(this.panel).position === "fixed" && this.panel.classList.contains("open");
    const foot = isSheet && sheet.left < box.right && sheet.right > box.left ? innerHeight - sheet.height - 16 : innerHeight - (getComputedStyle(this.rail).position === "sticky" ? this.rail.offsetHeight : 0);
    const head = this.topEdge();
    if (box.top >= head && box.bottom <= foot) return;
    scrollBy({ top: box.top - head - Math.max(0, foot - head - box.height) / 2, behavior: isStill() ? "auto" : "smooth" });
  },

  // How much of the screen what sticks to its top covers.
  topEdge() {
    const card = this.root.querySelector(".prog");
    const isStrip = getComputedStyle(card).position === "sticky";
    return document.querySelector("header.top").offsetHeight + (isStrip ? card.offsetHeight : 0) + 8;
  },

  toGrid() {
    const grids = [...this.zones.querySelectorAll(".outcome [data-grid], .operands [data-grid]")].sort((a, b) => Number(b.closest(".outcome") !== null) - Number(a.closest(".outcome") !== null));
    const at = grids.findIndex((grid) => grid.contains(document.activeElement));
    const next = grids[(at + 1) % grids.length];
    (next?.querySelector("td.chosen") ?? next?.querySelector('td[tabindex="0"]') ?? next?.querySelector("td.cell"))?.focus();
    this.reveal();
  },
});

// How many rows and columns of each operand and of the result there is room for.
function roomsFor(operands, [rows, columns], tight) {
  const count = operands.length;
  const whole = [0, operands.some(([tall]) => tall > 9) ? 6 : 9, 10, 7, 5][Math.min(4, count)];
  const least = Math.max(count, whole - 2 * tight);
  const even = Math.max(1, Math.floor(least / Math.max(1, count)));
  let spare = least - operands.reduce((sum, [high]) => sum + Math.min(high, even), 0);
  const high = operands.map(([wanted]) => {
    const more = bounded(wanted - even, 0, Math.max(0, spare));
    spare -= more;
    return Math.min(wanted, even) + more;
  });
  const widest = Math.min(6, Math.max(0, ...operands.map(([, wide]) => wide)));
  const isLarge = rows > 12 || columns > 12;
  const wide = isLarge ? 6 : bounded(12 - widest, 6, 8);
  return { operands: high.map((most) => ({ rows: most, columns: 6 })), result: { rows: Math.max(2, (isLarge ? 3 : columns > wide ? 6 : 9) - tight), columns: wide } };
}
