// The text of a program, changed in the page: it is read here, and everything follows. What cannot be read is said under
// the text, and what was last good stays.
"use strict";

const A_MOMENT = 250; // Milliseconds after the last key.

Object.assign(Page.prototype, {
  // The text of the program as it was when the page was made.
  baseText() {
    return this.base.lines.map((pieces) => pieces.map(([text]) => text).join("")).join("\n");
  },

  // The desk: a button, and behind it a field with the text and what is wrong with it.
  deskView() {
    this.field = el("textarea", {
      class: "writing", spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off", id: `text-${this.number}`, "aria-describedby": `mistake-${this.number}`,
      "aria-label": this.landmark("The text of the program; Escape leaves it"),
      oninput: () => this.soon(), onscroll: () => { this.gutter.scrollTop = this.field.scrollTop; },
      onkeydown: (event) => {
        if (event.key === "Escape") this.leaveDesk();
        else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.now();
        else return;
        event.preventDefault();
        event.stopPropagation();
      },
    });
    this.gutter = el("div", { class: "gutter", "aria-hidden": "true" });
    this.mistake = el("div", { class: "mistake", id: `mistake-${this.number}`, role: "status" });
    this.editButton = button("Edit", { class: "plain", title: "change the text of the program", "aria-expanded": "false" }, () => (this.card.classList.contains("editing") ? this.leaveDesk() : this.enterDesk()));
    const saveButton = button("Save", { class: "plain", title: "save this page as a file, with what was changed" }, savePage);
    this.folio = el("div", { class: "folio" }, this.gutter, this.field);
    return [el("div", { class: "desk" }, this.folio, this.mistake), el("div", { class: "pens" }, this.editButton, saveButton)];
  },

  enterDesk() {
    if (this.draft === undefined) this.field.value = this.text ?? this.baseText();
    this.card.classList.add("editing");
    this.editButton.textContent = "Done";
    this.editButton.setAttribute("aria-expanded", "true");
    this.numberLines();
    this.field.focus({ preventScroll: true });
    // The caret stands in the line that is lit.
    const line = Number(this.source.querySelector(".line.now")?.dataset.line ?? 1);
    const at = this.field.value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    if (this.draft === undefined) this.field.setSelectionRange(at, at);
    const high = this.field.scrollHeight / this.field.value.split("\n").length;
    this.field.scrollTop = Math.max(0, (line - 1) * high - this.field.clientHeight / 2);
    this.card.scrollIntoView({ block: "nearest" });
  },

  leaveDesk() {
    this.now();
    this.card.classList.remove("editing");
    this.editButton.textContent = this.draft === undefined ? "Edit" : "Edit ✗";
    this.editButton.setAttribute("aria-expanded", "false");
    this.editButton.focus();
    this.showLine();
  },

  // Line numbers; that of a mistake is marked.
  numberLines(wrong = 0) {
    const count = this.field.value.split("\n").length;
    const upTo = (from, to) => Array.from({ length: Math.max(0, to - from) }, (_, n) => `${from + n + 1}\n`).join("");
    this.folio.style.setProperty("--lines", String(count));
    this.gutter.replaceChildren(upTo(0, wrong > 0 ? wrong - 1 : count), ...(wrong > 0 ? [el("span", { class: "wrong" }, `✗ ${wrong}\n`), upTo(wrong, count)] : []));
    this.gutter.scrollTop = this.field.scrollTop;
  },

  soon() {
    clearTimeout(this.waiting);
    this.numberLines();
    this.waiting = setTimeout(() => this.now(), A_MOMENT);
  },

  // What stands in the field, followed at once.
  now() {
    clearTimeout(this.waiting);
    if (this.field.value === (this.text ?? this.baseText())) this.saidWell();
    else if (this.write(this.field.value)) this.remember();
  },

  // Follow a text; false, and said, where that cannot be done. Numbers that were changed stay so where they still fit.
  write(text) {
    const kept = (this.changesText()).filter((part) => part.startsWith("set=")).map((part) => part.slice(4));
    let data = this.base;
    try {
      if (text !== this.baseText()) data = remade(this.base, text, { ...STANDARD, ...this.base.modules });
    } catch (problem) {
      if (!(problem instanceof Mistake || problem instanceof RangeError)) throw problem;
      this.saidWrong(text, problem instanceof Mistake ? problem : new Mistake("this program is too deep to follow in the page", [0, 0], "`ix show` takes it"));
      return false;
    }
    this.restore();
    this.text = data === this.base ? undefined : text;
    this.adopt(data);
    this.recallChanges(kept);
    this.saidWell();
    countChanges();
    return true;
  },

  // Back to the text that the page was made with.
  unwrite() {
    this.text = undefined;
    this.draft = undefined;
    this.adopt(this.base);
    this.field.value = this.baseText();
    this.saidWell();
  },

  // Another content in the same place: the scene and the chosen cell stay where they still are.
  adopt(data) {
    const [scene, path] = [this.scene, this.path];
    if (this.moving !== undefined) this.stop();
    this.take(data);
    Object.assign(this, { original: undefined, claimed: undefined, changes: new Map(), pointed: null, pinned: null });
    this.scene = this.tables.has(scene) ? scene : undefined;
    if (this.scene === undefined) this.open();
    else {
      this.path = path.filter(({ name, place }) => this.isPlace(name, place));
      if (this.path.length === 0 && this.tables.get(this.scene).size > 0) {
        this.settle(this.scene);
        this.path = [{ name: this.scene, place: this.placeOn(this.scene) }];
      }
      this.beat = this.beats().length;
    }
    this.sayWhy();
    this.drawSource();
    if (this.claimsCard !== undefined) this.claimsCard.hidden = data !== this.base;
    this.afterChange();
    if (this.mates.length === 0) return;
    markLines(...[this, ...this.mates].sort((a, b) => a.number - b.number));
    compareAgain([this, ...this.mates]);
  },

  saidWell() {
    this.draft = undefined;
    this.field.removeAttribute("aria-invalid");
    this.mistake.replaceChildren(...(this.text === undefined ? [] : [el("p", {}, "Followed, in decimals. ", el("span", { class: "hint" }, ...this.coded(this.notSaid())))]));
    if (this.card.classList.contains("editing")) this.numberLines();
  },

  // What the page leaves to the compiler, and the commands for it.
  notSaid() {
    const also = [...(/\bexpect\b/.test(this.text) ? ["`ix verify` checks figures that are claimed"] : []), ...(/\battention\b/.test(this.text) ? ["`ix check` proves contracts"] : [])];
    return ["`ix exact` has exact forms", "`ix check` more findings", ...also].join(", ").concat(".");
  },

  // The line, a caret under the place, what is wrong and what to do. The stage keeps what was last good.
  saidWrong(text, { message, span, help }) {
    this.draft = text.slice(0, LONGEST_TEXT);
    if (!this.card.classList.contains("editing")) {
      this.field.value = this.draft;
      this.enterDesk();
    }
    const [start, end] = span;
    const before = text.slice(0, start);
    const line = before.split("\n").length;
    const column = start - (before.lastIndexOf("\n") + 1);
    const whole_ = text.split("\n")[line - 1] ?? "";
    const from = Math.max(0, column - 40);
    const shownLine = `${from > 0 ? "…" : ""}${whole_.slice(from, from + 90)}`;
    const caret = " ".repeat(column - from + (from > 0 ? 1 : 0)) + "^".repeat(Math.max(1, Math.min(end - start, whole_.length - column, 90 - (column - from))));
    this.field.setAttribute("aria-invalid", "true");
    this.numberLines(line);
    this.mistake.replaceChildren(el("p", {}, el("strong", {}, `Line ${line}: `), ...this.coded(message), "."), el("pre", {}, `${shownLine}\n${caret}`),
      ...(help === null ? [] : [el("p", {}, "Help: ", ...this.coded(help), help.endsWith("?") ? "" : ".")]), el("p", { class: "hint" }, "The page shows the last text without a mistake. ", button("Take the change back", { class: "plain" }, () => {
        this.field.value = this.text ?? this.baseText();
        this.saidWell();
        this.field.focus();
      })));
  },
});
