// Motion: a pure function of the time on the slider. Playing, arrows and dragging only move that time.
"use strict";

const BEAT = 620, BACK = 280, REST = 700; // Milliseconds.

const eased = (part) => (part < 0.5 ? 4 * part ** 3 : 1 - (2 - 2 * part) ** 3 / 2);

Object.assign(Page.prototype, {
  seek(time) {
    this.stop();
    const at = bounded(Math.floor(time), 0, this.steps.length - 1);
    const { name } = this.steps[at];
    if (name !== this.scene) this.go(name);
    this.setBeat((time - at) * this.beats().length);
  },

  seekBeat(beat) {
    this.stop();
    this.glide(beat);
  },

  setBeat(beat) {
    for (const page of [this, ...this.mates]) {
      page.beat = page === this ? beat : Math.min(beat, page.beats().length);
      page.showBeat();
    }
  },

  // One beat on or back; beyond the last one, the next step.
  nudge(way) {
    this.stop();
    const beats = this.beats().length;
    const next = way > 0 ? Math.floor(this.beat + 1e-6) + 1 : Math.ceil(this.beat - 1e-6) - 1;
    const at = this.steps.findIndex((step) => step.name === this.scene) + way;
    if (next >= 1 && next <= beats) this.glide(next);
    else if (at < this.steps.length && at >= 0) {
      this.go(this.steps[at].name, way > 0 ? 0 : undefined);
      if (way > 0) this.glide(Math.min(1, this.beats().length));
    }
  },

  // The chosen cell of the result is computed again, in a good second.
  replay() {
    const beats = this.beats().length;
    if (isStill() || beats === 0) return;
    this.setBeat(0);
    this.glide(beats, undefined, 1200 / beats);
  },

  // The time moves to a beat; at once where motion is not wanted.
  glide(to, then, pace = to > this.beat ? BEAT : BACK) {
    this.stop();
    const from = this.beat;
    if (isStill() || from === to) {
      this.setBeat(to);
      then?.();
      return;
    }
    const length = Math.abs(to - from) * pace;
    const start = performance.now();
    const frame = (now) => {
      const part = Math.min(1, (now - start) / length);
      this.setBeat(from + (to - from) * part);
      if (part < 1) this.moving = requestAnimationFrame(frame);
      else {
        this.moving = undefined;
        then?.();
      }
    };
    this.moving = requestAnimationFrame(frame);
  },

  stop() {
    if (this.moving !== undefined) cancelAnimationFrame(this.moving);
    clearTimeout(this.resting);
    this.moving = undefined;
    this.setPlaying(false);
  },

  setPlaying(isPlaying) {
    this.isPlaying = isPlaying;
    this.playButton.textContent = isPlaying ? "❚❚" : "▶";
    this.playButton.setAttribute("aria-label", isPlaying ? "pause" : "play the steps");
  },

  play() {
    if (this.isPlaying) {
      this.stop();
      return;
    }
    const at = this.steps.findIndex((step) => step.name === this.scene);
    const isOver = at < 0 || this.beat >= this.beats().length - 1e-6;
    const next = at === this.steps.length - 1 || at < 0 ? 0 : at + 1;
    if (isOver) this.perform(next);
    else this.perform(at, this.beat);
  },

  perform(at, beat = 0) {
    if (this.steps[at] === undefined) {
      this.stop();
      return;
    }
    this.go(this.steps[at].name, beat);
    const end = this.beats().length;
    const rest = () => {
      this.setPlaying(true);
      this.resting = setTimeout(() => this.perform(at + 1), isStill() ? 2 * REST : REST);
    };
    this.glide(end, rest);
    this.setPlaying(true);
  },

  // ------------------------------------------------------------------ ghosts

  // What stands in the working now, what is still to come, and what flies there from the operands.
  stageMotion(beats) {
    for (const ghost of this.zones.querySelectorAll(".ghost")) ghost.remove();
    const isWhole = this.beat >= beats;
    const target = this.zones.querySelector(".outcome .chosen");
    target?.classList.toggle("waiting", !isWhole && beats > 0);
    for (const node of this.work?.querySelectorAll("[data-beat]") ?? []) {
      const part = bounded(this.beat - Number(node.dataset.beat), 0, 1);
      const until = node.dataset.until === undefined ? Infinity : Number(node.dataset.until);
      node.classList.toggle("waiting", part === 0 || this.beat > until);
      node.style.setProperty("--part", part.toFixed(3));
      if (node.from !== undefined && part > 0 && part < 1 && !isStill()) {
        node.classList.add("waiting");
        this.fly(this.zones.querySelector(`[data-cell="${CSS.escape(node.from)}"]`), node, eased(part), node.textContent);
      }
    }
    const last = this.work?.querySelector(".final");
    if (last && target && !isWhole && this.beat > beats - 0.5 && !isStill()) this.fly(last, target, eased(2 * (this.beat - beats + 0.5)), target.textContent);
  },

  fly(from, to, part, text) {
    if (from === null || to === null) return;
    const [start, end, room] = [from, to, this.zones].map((node) => node.getBoundingClientRect());
    const between = (a, b) => a + (b - a) * part;
    const ghost = el("span", { class: "ghost", "aria-hidden": "true" }, text);
    ghost.style.cssText = `width: ${end.width}px; height: ${end.height}px; transform: translate(${between(start.left, end.left) - room.left}px, ${between(start.top, end.top) - room.top - 14 * Math.sin(Math.PI * part)}px)`;
    this.zones.append(ghost);
  },
});
