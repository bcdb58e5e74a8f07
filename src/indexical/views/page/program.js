// The program: its lines, the one that is computed now, its coordinates with their stories, findings and claims.
"use strict";

Object.assign(Page.prototype, {
  coordinate(name, text = spoken(name)) {
    const known = this.colours.get(bare(name));
    if (known === undefined) return document.createTextNode(text);
    return el("span", {
      class: `coordinate c${known}`, "data-coordinate": bare(name), onpointerenter: () => this.tell(name), onpointerleave: () => this.tell(null),
    }, text);
  },

  // What happens to a coordinate, and every place where it stands. Null: nothing, or the one that was pinned.
  tell(asked) {
    const name = bare(asked ?? this.pinned ?? "");
    for (const node of this.root.querySelectorAll(".coordinate, .chip")) node.classList.toggle("lit", node.dataset.coordinate === name);
    const entry = this.data.coordinates.find((found) => found.name === name);
    this.story.replaceChildren();
    if (entry === undefined) return;
    const fates = entry.story.map(([definition, words]) => `${definition}: ${this.voice === "plain" ? plainFate(words) : words}`);
    this.story.append(el("strong", { class: `c${this.colours.get(name)}` }, name), ` ${entry.space ? `is a ${entry.space}` : "is a coordinate"}. `, fates.join("; "));
  },

  // A formula with every coordinate in its colour.
  formula(text) {
    const parts = text.split(/([\p{L}_][\p{L}\p{N}_]*'*)/u);
    const known = (part) => this.colours.has(bare(part)) && !this.tables.has(part);
    return el("code", {}, parts.map((part) => (known(part) ? this.coordinate(part) : part)));
  },

  // Words with formulas in backticks.
  coded(text) {
    return text.split("`").map((part, n) => (n % 2 ? this.formula(part) : part));
  },

  programView() {
    this.source = el("div", { class: "source", tabindex: "0", role: "region", "aria-label": this.landmark("Its text") });
    this.drawSource();
    this.legend = el("p", { class: "legend" });
    this.story = el("p", { class: "story", id: `story-${this.number}`, role: "status" });
    const more = button("⌄", { class: "more", "aria-label": "the whole program", "aria-expanded": "false" }, () => {
      const isWhole = this.card.classList.toggle("whole");
      more.setAttribute("aria-expanded", String(isWhole));
    });
    this.card = el("section", { class: "prog card", "aria-label": this.landmark("The program") }, this.source, this.deskView(), more, el("div", { class: "axes" }, this.legend, this.story));
    return this.card;
  },

  // The lines of the text, each with what was found in it.
  drawSource() {
    const found = byLine(this.data.diagnostics);
    const ends = new Map(this.steps.filter((step) => step.inside === null).flatMap((step) => step.lines.flatMap(([first, last]) => Array.from({ length: last - first + 1 }, (_, n) => [first + n, step]))));
    this.source.replaceChildren(...(found.get(0) ?? []).map((diagnostic) => this.finding(diagnostic)), ...this.data.lines.flatMap((pieces, n) => [
      el("div", { class: ends.has(n + 1) ? "line step" : "line", "data-line": n + 1, onclick: ends.has(n + 1) ? () => this.go(ends.get(n + 1).name) : null },
        el("span", { class: "number", "aria-hidden": "true" }, String(n + 1)), el("span", { class: "text" }, pieces.map(([text, kind]) => this.piece(text, kind)))),
      ...(found.get(n + 1) ?? []).map((diagnostic) => this.finding(diagnostic)),
    ]));
  },

  drawLegend() {
    this.legend.replaceChildren(...this.data.coordinates.map((entry) => {
      const pin = button([this.coordinate(entry.name), ` ${this.meaning(entry)}`], {
        class: "chip", "data-coordinate": entry.name, "aria-describedby": this.story.id, "aria-pressed": String(this.pinned === entry.name),
        onfocus: () => this.tell(entry.name), onblur: () => this.tell(null), onpointerenter: () => this.tell(entry.name), onpointerleave: () => this.tell(null),
      }, () => {
        this.pinned = this.pinned === entry.name ? null : entry.name;
        for (const other of this.legend.children) other.setAttribute("aria-pressed", String(other === pin && this.pinned !== null));
        this.tell(this.pinned);
      });
      return pin;
    }));
    this.tell(null);
  },

  // The lit line is always in view: inside the card, not by moving the page.
  showLine() {
    const lit = this.source.querySelector(".line.now");
    if (lit === null) return;
    const [box, room] = [lit.getBoundingClientRect(), this.source.getBoundingClientRect()];
    if (box.top < room.top || box.bottom > room.bottom) this.source.scrollTop += box.top - room.top - (room.height - box.height) / 3;
  },

  finding(diagnostic) {
    return el("div", { class: `finding ${diagnostic.severity}` },
      el("strong", {}, `${diagnostic.severity}[${diagnostic.code}]: `, this.coded(diagnostic.message)),
      diagnostic.notes.map((note) => el("div", {}, "note: ", this.coded(note))),
      diagnostic.help ? el("div", {}, "help: ", this.coded(diagnostic.help)) : null);
  },

  piece(text, kind) {
    if (kind === "coordinate") return this.coordinate(text);
    if (kind === "tensor" && this.tables.has(text)) return el("span", { class: "tensor-name", "data-name": text, onclick: (event) => { event.stopPropagation(); this.go(text); } }, text);
    return kind === "" ? text : el("span", { class: `word-${kind}` }, text);
  },

  claimsView() {
    const { claims } = this.data;
    if (claims.length === 0) return null;
    this.claimsCard = el("section", { class: "claims card", "aria-label": this.landmark("What is claimed") }, el("h2", {}, "What is claimed"), el("ul", {}, claims.map((claim) => {
      const wrong = claim.cells.filter((cell) => cell.verdict !== "holds");
      const place = (cell) => (cell.at !== null ? this.down(claim.target, cell.at, true) : claim.coordinates.map((name, n) => `${name} = ${cell.place[n]}`).join(", "));
      return el("li", { class: `claim ${claim.verdict}` }, el("strong", {}, VERDICTS[claim.verdict]), " ", this.formula(shortened(claim.text)),
        wrong.length === 0 ? ` (${claim.counted})` : el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ["cell", "claimed", "exactly", "off by"].map((word) => el("th", { scope: "col" }, word)))),
          el("tbody", {}, wrong.map((cell) => el("tr", {}, el("th", { scope: "row" }, place(cell)), el("td", {}, cell.claimed), el("td", {}, cell.exact), el("td", {}, cell.off ?? "")))))));
    })));
    return this.claimsCard;
  },
});

function byLine(diagnostics) {
  const found = new Map();
  for (const entry of diagnostics) found.set(entry.line ?? 0, [...(found.get(entry.line ?? 0) ?? []), entry]);
  return found;
}

function shortened(text) {
  const claim = text.replace(/^expect /, "").replace(/;$/, "");
  return claim.length > 120 ? `${claim.slice(0, 119)}…` : claim;
}
