// A page of one program: what it shows now. A scene is a tensor on the stage; `here` is where every coordinate stands.
"use strict";

const VERDICTS = { holds: "holds", rounding: "within rounding", undecided: "undecided", fails: "fails" };
const WORST = ["fails", "undecided", "rounding", "holds"];

class Page {
  constructor(data, root, number = 0) {
    this.root = root;
    this.number = number;
    this.form = "decimal";
    this.voice = "plain";
    this.here = {};
    this.by = "weight";
    this.mates = []; // Programs beside this one: they do what it does.
    this.take(data);
    this.base = data; // What the page was made with.
    this.open();
  }

  // The content of a program: the one that the page was made with, or one whose text was changed in it.
  take(data) {
    // A program may call its tensors whatever it likes: what it did not define is not there.
    for (const part of ["relation", "sizes", "kinds", "ended", "labels"]) Object.setPrototypeOf(data[part], null);
    this.data = data;
    this.relation = new Relation(data);
    this.tables = this.relation.tensors;
    this.gather = data.communication[0];
    this.steps = data.steps;
    this.own = data.steps.filter((step) => step.inside === null); // Links and digits count these.
    this.path = []; // The cells that were chosen, on the way down; the last one is explained.
    this.term = -1;
    this.tightness = new Map(); // How much less of a scene is shown, so that it fits on the screen.
    this.differing = new Map(); // Offsets of the cells that differ from a mate's.
    for (const { name } of data.coordinates) KNOWN.add(name);
    this.colours = coloursOf(data, this.gather);
    this.parts = partsOf(this);
    this.verdicts = new Map();
    for (const claim of data.claims) {
      for (const cell of claim.cells.filter((found) => found.at !== null)) {
        const key = label(claim.target, cell.at);
        this.verdicts.set(key, [...(this.verdicts.get(key) ?? []), { claim, cell }]);
      }
    }
  }

  // The opening: the strongest weight of the last query, or the last definition.
  open() {
    const scenes = this.data.tensors.filter((tensor) => !tensor.hidden || tensor.role === "definition");
    const weights = this.gather?.tensor?.name;
    const isComputed = this.steps.some((step) => step.name === weights);
    this.scene = (isComputed ? weights : this.gather?.definition) ?? this.own.at(-1)?.name ?? this.steps.at(-1)?.name ?? scenes.at(-1)?.name;
    if (this.gather !== undefined) this.here = { ...this.here, ...this.strongest(this.gather) };
    if (this.scene !== undefined) this.settle(this.scene);
    this.beat = this.scene === undefined ? 0 : this.beats().length;
    if (this.scene !== undefined) this.path = this.standing();
  }

  build() {
    this.said = el("p", { class: "unseen", role: "status" });
    const skip = button("To the numbers", { class: "skip" }, () => this.toGrid());
    this.root.classList.add("craft");
    this.root.append(skip, this.heroView(), this.stageView(), el("div", { class: "side" }, this.programView(), this.panelView()), this.claimsView() ?? "", this.said);
    this.listen();
    this.redraw();
  }

  // The name of a part of the page, told apart where there are several programs.
  landmark(words) {
    return this.number === 0 ? words : `${words}, program ${this.number + 1}`;
  }

  // The same in every program beside this one.
  together(act) {
    for (const page of [this, ...this.mates]) act(page);
    for (const page of PAGES) page.panel?.classList.toggle("front", page === this || this.mates.includes(page));
    this.remember();
  }

  // Everything again, in another form, voice, theme or with other numbers.
  redraw() {
    this.drawLegend();
    this.drawHero();
    this.drawStrip();
    this.refresh();
  }

  // What follows the scene and the chosen cell.
  refresh() {
    const step = this.steps.find((entry) => entry.name === this.scene);
    const now = new Set((step?.lines ?? []).flatMap(([first, last]) => Array.from({ length: last - first + 1 }, (_, n) => String(first + n))));
    for (const line of this.root.querySelectorAll(".line")) line.classList.toggle("now", now.has(line.dataset.line));
    this.showLine();
    this.drawPicture();
    this.drawStage();
    this.drawPanel();
    this.light();
  }

  // ---------------------------------------------------------------- places

  // The coordinates of a tensor, each by a name of its own.
  axesOf(name) {
    const { coordinates } = this.tables.get(name).tensor;
    const axes = coordinates.map(bare);
    return axes.map((axis, n) => (axes.indexOf(axis) === n ? axis : coordinates[n]));
  }

  // The cell of a tensor where the coordinates stand now; the nearest one in its row that is not masked.
  placeOn(name) {
    const table = this.tables.get(name);
    const place = this.axesOf(name).map((axis, n) => bounded(this.here[axis] ?? 0, 0, Math.max(0, table.shape[n] - 1)));
    if (table.size === 0 || !table.isMasked(place)) return place;
    for (let at = table.shape.at(-1) - 1; at >= 0; at -= 1) {
      const near = [...place.slice(0, -1), at];
      if (!table.isMasked(near)) return near;
    }
    for (let offset = 0; offset < table.size; offset += 1) if (!table.mask(offset)) return placeOf(table.shape, offset);
    return place;
  }

  // The way to the cell of the scene where the coordinates stand; none where it has no points.
  standing() {
    return this.isEmpty(this.scene) ? [] : [{ name: this.scene, place: this.placeOn(this.scene) }];
  }

  isEmpty(name) {
    return this.tables.get(name)?.size === 0;
  }

  // Stand where something is computed: not where a recurrence starts from, nor where there is nothing to add up.
  settle(name) {
    const clauses = this.data.relation[name]?.clauses ?? [];
    const table = this.tables.get(name);
    const isIdle = (place) => {
      const trace = this.traceAt(name, place);
      return this.beatsOf(trace).length === 0 || (trace.scans.length > 0 && trace.scans.every((scan) => scan.terms.length === 0));
    };
    if (clauses.length === 0 || table.size === 0 || !isIdle(this.placeOn(name))) return;
    for (let offset = 0; offset < Math.min(table.size, 300); offset += 1) {
      const place = placeOf(table.shape, offset);
      if (table.mask(offset) || isIdle(place)) continue;
      this.stand(name, place);
      return;
    }
  }

  stand(name, place) {
    this.axesOf(name).forEach((axis, n) => { this.here[axis] = place[n]; });
  }

  isPlace(name, place) {
    const table = this.tables.get(name);
    return table !== undefined && place.length === table.shape.length && place.every((at, axis) => at >= 0 && at < table.shape[axis]);
  }

  // What a point of a coordinate is called: its label, or its number.
  called(name, at) {
    return this.data.labels[bare(name ?? "")]?.[at] ?? String(at);
  }

  // ---------------------------------------------------------------- choosing

  // A cell is chosen: it is explained, and where it is on the stage it is computed again. `fresh`: not on the way down.
  select(name, place, fresh) {
    this.together((page) => {
      if (!page.isPlace(name, place)) return;
      if (fresh) page.path = [];
      const at = page.path.findIndex((entry) => label(entry.name, entry.place) === label(name, place));
      if (at >= 0) page.path = page.path.slice(0, at);
      page.path.push({ name, place });
      page.term = -1;
      page.stand(name, place);
      if (name === page.scene || !page.isOnStage(name)) page.enter(name);
      page.afterChoice();
    });
  }

  // Another point of a leading coordinate, such as another head.
  turn(point) {
    this.together((page) => {
      Object.assign(page.here, point);
      page.path = page.standing();
      page.term = -1;
      page.afterChoice();
    });
  }

  // Back to a cell on the way down.
  back(to) {
    const { name, place } = this.path[to];
    this.together((page) => { page.path = page.path.slice(0, to + 1); });
    this.select(name, place, false);
  }

  afterChoice() {
    this.drawHero();
    this.drawStrip();
    this.refresh();
    this.panel.classList.add("open");
    this.said.textContent = this.panel.querySelector("h2")?.textContent ?? "";
    if (this.mates.length === 0 || activePage() === this) this.reveal();
  }

  // A tensor comes on the stage, all of it computed.
  enter(name) {
    if (this.moving !== undefined) this.stop();
    this.scene = name;
    this.beat = this.beats().length;
  }

  go(name, beat) {
    this.together((page) => {
      if (page.tables.get(name) === undefined) return;
      if (page.scene !== name) {
        page.scene = name;
        page.term = -1;
        page.settle(name);
        page.path = page.standing();
        page.drawStrip();
      }
      page.beat = beat ?? page.beats().length;
      page.refresh();
      if (page === this) page.reveal();
    });
  }

  goTerm(term) {
    this.together((page) => {
      page.term = bounded(term, -1, page.termsOf(page.trace()).length - 1);
      page.refresh();
    });
  }

  trace() {
    const here = this.path.at(-1);
    return here === undefined ? null : this.traceAt(here.name, here.place);
  }

  // What a cell is made of, kept until another number changes.
  traceAt(name, place) {
    this.traces ??= new Map();
    const key = label(name, place);
    if (this.traces.size > 64) this.traces.clear();
    if (this.isEmpty(name)) return { name, place, masked: false, scans: [], reads: [], clause: null, point: {} };
    if (!this.traces.has(key)) this.traces.set(key, this.relation.trace(name, place));
    return this.traces.get(key);
  }

  termsOf(trace) {
    return trace === null || trace.scans.length === 0 ? [] : trace.scans[0].terms;
  }

  // ------------------------------------------------------------------ links

  link(parts) {
    const own = this.number > 0 ? [`program=${this.number + 1}`] : [];
    return `#${[...own, ...parts].join("&")}`;
  }

  // What is shown, and all that was changed in the page, as the end of an address.
  address() {
    const here = this.path.at(-1);
    const step = this.own.findIndex((entry) => entry.name === this.scene);
    const parts = step >= 0 ? [`step=${step + 1}`] : [];
    if (here !== undefined) parts.push(`cell=${label(here.name, here.place).replaceAll(" ", "")}`);
    if (this.term >= 0) parts.push(`term=${this.term + 1}`);
    parts.push(...this.changesText());
    for (const page of PAGES.filter((other) => other !== this)) {
      // What is beside this one has the same numbers.
      const changes = page.changesText().filter((part) => !this.mates.includes(page) || part.startsWith("text="));
      if (changes.length > 0) parts.push(`also=${encodeURIComponent([`program=${page.number + 1}`, ...changes].join("&"))}`);
    }
    return parts.length > 0 ? this.link(parts) : "";
  }

  remember() {
    try {
      history.replaceState(null, "", this.address() || location.pathname + location.search);
    } catch {
      // A browser may allow only so many in a while; then the address lags behind.
    }
  }

  // The place that a link says; what it says of nothing that is here is let be.
  recall(found) {
    this.recallAll(found);
    const step = this.own[Number.parseInt(found.get("step") ?? "", 10) - 1];
    if (step !== undefined) this.go(step.name);
    const cell = /^([^[\]]+)(?:\[([\d,]*)\])?$/u.exec((found.get("cell") ?? "").replaceAll(" ", ""));
    const place = (cell?.[2] ?? "").split(",").filter((part) => part !== "").map(Number);
    if (cell !== null && this.isPlace(cell[1], place)) {
      if (step === undefined) this.enter(cell[1]);
      this.select(cell[1], place, true);
    }
    const term = Number.parseInt(found.get("term") ?? "", 10);
    if (term > 0) this.goTerm(term - 1);
  }

  // The text, the words and the numbers that a link says.
  recallAll(found) {
    if (found.has("text")) this.write(found.get("text"));
    for (const text of found.getAll("words")) {
      const words = text.slice(text.indexOf(":") + 1).split(/\s+/u).filter((word) => word !== "");
      const field = this.wordFields?.get(text.split(":", 1)[0]);
      if (field?.count === words.length) field.call(words);
    }
    this.recallChanges(found.getAll("set"));
  }
}

// A colour for each coordinate: those of a gather by their part in it, the others in the order of the program.
function coloursOf(data, gather) {
  const parts = gather === undefined ? [] : [gather.query, gather.key, ...gather.compare, ...gather.carry];
  const known = new Set(data.coordinates.map((entry) => entry.name));
  const names = [...new Set([...parts.map(bare), ...known])];
  return new Map(names.map((name, n) => [name, n % 8]));
}
