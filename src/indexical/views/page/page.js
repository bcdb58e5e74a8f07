// A page of one program: what it shows now, the text of the program, and its steps.
"use strict";

const ROLES = { input: "input", given: "given", definition: "computed" };
const VERDICTS = { holds: "holds", rounding: "within rounding", undecided: "undecided", fails: "fails" };
const WORST = ["fails", "undecided", "rounding", "holds"];

class Page {
  constructor(data, root, number = 0) {
    this.data = data;
    this.root = root;
    this.number = number;
    this.relation = new Relation(data);
    this.tables = this.relation.tensors;
    this.colours = new Map(data.coordinates.map((entry) => [entry.name, entry.colour % 8]));
    this.form = "decimal";
    this.step = -1; // No step: the whole program at once.
    this.path = []; // The cells that were chosen, on the way down; the last one is shown.
    this.term = -1;
    this.lead = new Map(); // The leading coordinates that each matrix shows.
    this.figures = new Map();
    this.mates = []; // Programs beside this one: they do what it does.
    this.differing = new Map(); // Offsets of the cells that differ from a mate's.
    this.verdicts = new Map();
    for (const claim of data.claims) {
      for (const cell of claim.cells.filter((found) => found.at !== null)) {
        const key = label(claim.target, cell.at);
        this.verdicts.set(key, [...(this.verdicts.get(key) ?? []), { claim, cell }]);
      }
    }
  }

  build() {
    this.panel = el("div", { class: "panel" });
    this.said = el("p", { class: "unseen", role: "status" });
    const seeing = el("section", { class: "seeing", "aria-label": "Its matrices" }, this.stepBar(), this.matricesView(), this.talkView());
    const working = el("aside", { class: "working", "aria-label": "One number" }, this.panel, this.said);
    this.root.append(el("div", { class: "columns" },
      el("section", { class: "reading", "aria-label": "The program" }, this.programView(), this.stepsView(), this.claimsView()), seeing, working));
    this.redraw();
  }

  // The same in every program beside this one.
  together(act) {
    const team = [this, ...this.mates];
    for (const page of team) act(page);
    for (const page of PAGES) page.panel?.parentElement.classList.toggle("front", team.includes(page));
    this.remember();
  }

  // Everything again, in another form or theme.
  redraw() {
    for (const name of this.figures.keys()) this.draw(name);
    if (this.talk !== undefined) this.drawTalk();
    this.refresh();
  }

  refresh() {
    const { steps } = this.data;
    const step = steps[this.step];
    for (const link of this.stepList.querySelectorAll("a")) {
      if (Number(link.dataset.step) === this.step) link.setAttribute("aria-current", "step");
      else link.removeAttribute("aria-current");
    }
    this.stepStatus.replaceChildren(...(step === undefined ? ["the whole program"] : [`step ${this.step + 1} of ${steps.length}: `, el("code", {}, step.name), " is computed now"]));
    this.stepWords.replaceChildren(...(step === undefined ? [] : this.coded(step.words)));
    const now = new Set((step?.lines ?? []).flatMap(([first, last]) => Array.from({ length: last - first + 1 }, (_, n) => String(first + n))));
    for (const line of this.root.querySelectorAll(".line")) line.classList.toggle("now", now.has(line.dataset.line));
    this.showTrace();
    this.mark();
  }

  // ---------------------------------------------------------------- program

  coordinate(name, text = name) {
    const known = this.colours.get(bare(name));
    if (known === undefined) return document.createTextNode(text);
    return el("span", {
      class: `coordinate c${known}`, tabindex: "-1", "data-coordinate": bare(name),
      onmouseenter: () => this.tell(name), onfocus: () => this.tell(name), onmouseleave: () => this.tell(null), onblur: () => this.tell(null),
    }, text);
  }

  // What a point of a coordinate is called: its label, or its number.
  called(name, at) {
    return this.data.labels[bare(name ?? "")]?.[at] ?? String(at);
  }

  // What happens to a coordinate, and every place where it stands. Null: nothing, or the one that was pinned.
  tell(asked) {
    const name = bare(asked ?? this.pinned ?? "");
    for (const node of this.root.querySelectorAll(".coordinate")) node.classList.toggle("lit", node.dataset.coordinate === name);
    const entry = this.data.coordinates.find((found) => found.name === name);
    const fates = new Map(entry?.story ?? []);
    for (const [tensor, figure] of this.figures) {
      const fate = fates.get(tensor);
      figure.querySelector(".fate").replaceChildren(...(fate === undefined ? [] : [el("span", { class: `c${this.colours.get(name)}` }, name), ` ${fate}`]));
    }
    this.story.replaceChildren(entry === undefined ? "Point at a coordinate: where it survives, is consumed, is normalised." : "");
    if (entry === undefined) return;
    this.story.append(el("strong", { class: `c${this.colours.get(name)}` }, name), entry.space ? ` is a ${entry.space}. ` : ". ",
      entry.story.map(([definition, words]) => `${definition}: ${words}`).join("; ") || "Nothing is known of it.");
  }

  // A formula with every coordinate in its colour.
  formula(text) {
    const parts = text.split(/([\p{L}_][\p{L}\p{N}_]*'*)/u);
    const known = (part) => this.colours.has(bare(part)) && !this.tables.has(part);
    return el("code", {}, parts.map((part) => (known(part) ? this.coordinate(part) : part)));
  }

  // Words with formulas in backticks.
  coded(text) {
    return text.split("`").map((part, n) => (n % 2 ? this.formula(part) : part));
  }

  programView() {
    this.story = el("p", { class: "story", id: `story-${this.number}`, role: "status" });
    const legend = el("p", { class: "legend" }, this.data.coordinates.map((entry) => {
      const chip = this.coordinate(entry.name);
      const pin = button([chip, entry.space ? ` ${entry.space}` : ""], {
        class: "chip", "aria-describedby": this.story.id, "aria-pressed": "false", onfocus: () => this.tell(entry.name), onblur: () => this.tell(null),
        onmouseenter: () => this.tell(entry.name), onmouseleave: () => this.tell(null),
      }, () => {
        this.pinned = this.pinned === entry.name ? null : entry.name;
        for (const other of legend.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === pin && this.pinned !== null));
        this.tell(this.pinned);
      });
      chip.removeAttribute("tabindex");
      return pin;
    }));
    this.tell(null);
    const found = byLine(this.data.diagnostics);
    const lines = this.data.lines.flatMap((pieces, n) => [
      el("div", { class: "line", "data-line": n + 1 }, el("span", { class: "number", "aria-hidden": "true" }, String(n + 1)),
        el("span", { class: "text" }, pieces.map(([text, kind]) => this.piece(text, kind)))),
      ...(found.get(n + 1) ?? []).map((diagnostic) => this.finding(diagnostic)),
    ]);
    return el("div", { class: "program" }, el("h2", {}, "The program"), legend, this.story,
      (found.get(0) ?? []).map((diagnostic) => this.finding(diagnostic)), el("pre", { class: "source" }, lines));
  }

  finding(diagnostic) {
    return el("div", { class: `finding ${diagnostic.severity}` },
      el("strong", {}, `${diagnostic.severity}[${diagnostic.code}]: `, this.coded(diagnostic.message)),
      diagnostic.notes.map((note) => el("div", {}, "note: ", this.coded(note))),
      diagnostic.help ? el("div", {}, "help: ", this.coded(diagnostic.help)) : null);
  }

  piece(text, kind) {
    if (kind === "coordinate") return this.coordinate(text);
    if (kind === "tensor") return el("a", { class: "tensor-name", tabindex: "-1", href: `#tensor-${this.number}-${text}` }, text);
    return kind === "" ? text : el("span", { class: `word-${kind}` }, text);
  }

  // ------------------------------------------------------------------ steps

  stepBar() {
    this.stepStatus = el("p", { class: "step-status", role: "status" });
    this.stepWords = el("p", { class: "words" });
    const press = (text, words, act) => button(text, { "aria-label": words, title: words }, act);
    return el("div", { class: "stepper", role: "group", "aria-label": "Steps" }, el("div", { class: "buttons" },
      press("◀", "previous definition", () => this.go(this.step - 1)), press("▶", "next definition", () => this.go(this.step + 1)),
      press("▲", "previous term", () => this.goTerm(this.term - 1)), press("▼", "next term", () => this.goTerm(this.term + 1)),
      press("all", "show the whole program", () => this.go(-1))), this.stepStatus, this.stepWords);
  }

  stepsView() {
    this.stepList = el("ol", { class: "steps" }, this.data.steps.map((step, n) => el("li", {},
      el("a", { href: this.link([`step=${n + 1}`]), "data-step": n, onclick: (event) => { event.preventDefault(); this.go(n); } }, step.name),
      el("div", { class: "words" }, this.coded(step.words)))));
    return el("div", {}, el("h2", {}, "Steps"), this.stepList);
  }

  go(step) {
    const name = this.data.steps[step]?.name;
    this.together((page) => {
      const there = page.data.steps.findIndex((entry) => entry.name === name);
      page.step = page === this || there < 0 ? Math.max(-1, Math.min(step, page.data.steps.length - 1)) : there;
      page.path = [];
      page.term = -1;
      page.refresh();
    });
  }

  // One term of the cell that is shown, or of the first cell of this step.
  goTerm(term) {
    this.together((page) => {
      if (page.path.length === 0) {
        const name = page.data.steps[Math.max(0, page.step)]?.name;
        if (name === undefined) return;
        page.step = Math.max(0, page.step);
        page.path = [{ name, place: page.firstPlace(name) }];
      }
      page.term = Math.max(-1, Math.min(term, page.termsOf(page.trace()).length - 1));
      page.refresh();
    });
  }

  firstPlace(name) {
    const table = this.tables.get(name);
    for (let offset = 0; offset < table.size; offset += 1) if (!table.mask(offset)) return placeOf(table.shape, offset);
    return table.shape.map(() => 0);
  }

  // ------------------------------------------------------------------ links

  link(parts) {
    const own = this.number > 0 ? [`program=${this.number + 1}`] : [];
    return `#${[...own, ...parts].join("&")}`;
  }

  remember() {
    const here = this.path.at(-1);
    const parts = this.step >= 0 ? [`step=${this.step + 1}`] : [];
    if (here !== undefined) parts.push(`cell=${label(here.name, here.place).replaceAll(" ", "")}`);
    if (this.term >= 0) parts.push(`term=${this.term + 1}`);
    try {
      history.replaceState(null, "", parts.length ? this.link(parts) : location.pathname + location.search);
    } catch {
      // A browser may allow only so many in a while; then the address lags behind.
    }
  }

  // The place that a link says; what it says of nothing that is here is let be.
  recall(found) {
    const step = Number.parseInt(found.get("step") ?? "", 10);
    if (step >= 0) this.step = Math.min(this.data.steps.length, step) - 1;
    const cell = /^([^[\]]+)(?:\[([\d,]*)\])?$/u.exec((found.get("cell") ?? "").replaceAll(" ", ""));
    const table = cell === null ? undefined : this.tables.get(cell[1]);
    const place = (cell?.[2] ?? "").split(",").filter((part) => part !== "").map(Number);
    if (table !== undefined && place.length === table.shape.length && place.every((at, axis) => at < table.shape[axis])) {
      this.path = [{ name: cell[1], place }];
      const term = Number.parseInt(found.get("term") ?? "", 10) || 0;
      this.term = Math.max(-1, Math.min(term, this.termsOf(this.trace()).length) - 1);
    }
    this.refresh();
    this.panel.parentElement.classList.add("front");
  }
}

// A coordinate by the name it has in the text: `..r` is r, and j' is j.
const bare = (name) => name.replace(/^\.\.|'+$/g, "");

function byLine(diagnostics) {
  const found = new Map();
  for (const entry of diagnostics) found.set(entry.line ?? 0, [...(found.get(entry.line ?? 0) ?? []), entry]);
  return found;
}
