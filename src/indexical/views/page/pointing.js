// Pointing: a partial assignment such as {i: 2, j: 1}, lit wherever it stands: tokens, lines, axes, cells, terms.
"use strict";

Object.assign(Page.prototype, {
  // A node that stands for a point. What has only pointed coordinates is hot; what shares one and contradicts none, warm.
  linked(node, point) {
    node.at = point;
    node.classList.add("linked");
    return node;
  },

  listen() {
    const pointAt = (target) => this.point(target.closest?.(".linked")?.at ?? null);
    this.root.addEventListener("pointerover", (event) => pointAt(event.target));
    this.root.addEventListener("pointerleave", () => this.point(null));
    this.root.addEventListener("focusin", (event) => {
      if (event.target.matches(":focus-visible")) pointAt(event.target);
    });
    // On the way to another part of the page nothing is drawn again: that part would be gone before it has the focus.
    this.root.addEventListener("focusout", (event) => {
      if (!this.root.contains(event.relatedTarget)) this.point(null);
    });
  },

  point(found) {
    // A picture that is drawn again takes the focus away and gives it back: that points at nothing new.
    if (this.isPointing) return;
    this.isPointing = true;
    for (const page of [this, ...this.mates]) {
      if (page.pointed === found) continue;
      page.pointed = found;
      if (page.gather !== undefined) page.drawPicture();
      page.light();
    }
    this.isPointing = false;
  },

  light() {
    const term = this.termsOf(this.trace())[this.term];
    const found = this.pointed ?? (term === undefined ? null : Object.fromEntries(this.trace().scans[0].names.map((name, n) => [bare(name), term.at[n]])));
    for (const node of this.root.querySelectorAll(".hot, .warm")) node.classList.remove("hot", "warm");
    if (found === null) return;
    for (const node of this.root.querySelectorAll(".linked")) {
      const names = Object.keys(node.at);
      const same = names.filter((name) => found[name] === node.at[name]);
      if (same.length === 0) continue;
      if (same.length === names.length) node.classList.add("hot");
      else if (names.every((name) => found[name] === undefined || found[name] === node.at[name])) node.classList.add("warm");
    }
  },
});
