// The inputs of a program: the arrays that the page has for them.
"use strict";

Object.assign(Lowering.prototype, {
  inputScope() {
    const [names, sizes, rests] = [new Map(), this.literalSizes(), new Map()];
    const scope = { names, functions: this.functions, spaces: this.declared.spaces, sizes, rests, frame: newFrame("input"), conditions: [], inFunction: false };
    this.inputs = [];
    const waiting = [];
    const said = new Map();
    for (const item of this.declared.inputs.values()) {
      const array = this.given.get(item.name);
      if (array === undefined) throw new Mistake(`the page has no numbers for \`${item.name}\``, item.nameSpan, closest(item.name, this.given.keys()) ?? `give it figures, as in \`let ${item.name}[i] = [1, 2, 3];\`; \`ix show\` takes arrays`);
      const slots = item.slots ?? [];
      const shape = this.fitted(item, slots, array);
      const axes = slots.map((slot, n) => {
        if (slot.kind !== "Binder") throw new Mistake("an input's bracket holds coordinates", slot.span, "a size is stated as `i in 0..5`");
        checkFree(slot.name, slot.span);
        if (slot.rest && n > 0) throw new Mistake("`..` leads a bracket, once", slot.span);
        if (slots.findIndex((other) => other.name === slot.name) < n) throw new Mistake(`\`${slot.name}\` stands twice in one bracket`, slot.span, "give one another name");
        const axis = { coordinate: slot.rest ? `..${slot.name}` : slot.name, extent: shape[n], origin: 0, space: this.declared.spaces.get(slot.name) };
        if (slot.range !== null) waiting.push([slot, shape[n]]);
        if (slot.rest) rests.set(slot.name, [axis]);
        else {
          const known = said.get(slot.name);
          if (known !== undefined && known[1] !== shape[n]) throw new Mistake(`\`${slot.name}\` has ${counted(shape[n], "point")} in \`${item.name}\` and ${known[1]} in \`${known[0]}\``, slot.span, "if these are two coordinates, give one another name");
          said.set(slot.name, [item.name, shape[n]]);
          sizes.set(slot.name, shape[n]);
        }
        return axis;
      });
      const kind = item.dtype === null ? this.kinds.get(item.name) ?? "real" : kindOf(item.dtype);
      this.checkValues(item, array, kind);
      names.set(item.name, { tensor: true, name: item.name, axes, kind, span: item.span, captured: [], recursive: false });
      this.inputs.push({ name: item.name, axes, kind, shape, span: item.span });
    }
    for (const [slot, extent] of waiting) {
      const [low, high] = this.bounds(scope, slot.range, slot.name, false).map((bound) => this.number(bound));
      if (low !== 0) throw new Mistake(`the range of an input's \`${slot.name}\` must start at 0`, slot.range.lower.span);
      if (high !== extent) throw new Mistake(`\`${slot.name}\` has ${counted(high, "point")} here, and the page's array has ${extent}`, slot.range.span, "`ix show` takes other arrays");
    }
    return scope;
  },

  // The shape of an array, with all that `..r` stands for as one axis.
  fitted(item, slots, { shape }) {
    const lead = shape.length - slots.length;
    if (lead === 0) return shape;
    if (lead > 0 && slots[0]?.rest) return [shape.slice(0, lead + 1).reduce((product, length) => product * length, 1), ...shape.slice(lead + 1)];
    throw new Mistake(`\`${item.name}\` has ${counted(slots.length, "coordinate")} here, and the page's array has ${shape.length}`, item.span, "`ix show` takes other arrays");
  },

  checkValues(item, array, kind) {
    const isBool = array.kind === "bool";
    if (isBool !== (kind === "bool")) throw new Mistake(`\`${item.name}\` is ${KIND_NAMES[kind]} here, and the page's array holds ${isBool ? "true and false" : "numbers"}`, item.span, isBool ? `declare it \`${item.name}… : bool\`` : "`ix show` takes other arrays");
    if (kind === "whole" && array.kind !== "whole" && !array.values.every((value) => Number.isInteger(value))) throw new Mistake(`\`${item.name}\` is used as a whole number, and the page's numbers for it are not whole`, item.span, "`… as i64` truncates");
  },

  // Figures in the text stand for inputs: their coordinates have sizes too, where they agree.
  literalSizes() {
    const found = new Map();
    for (const clauses of this.declared.lets.values()) {
      const shape = shapeOf(clauses[0].body);
      const slots = clauses[0].slots ?? [];
      if (clauses.length > 1 || shape.length === 0 || shape.length !== slots.length) continue;
      slots.forEach((slot, n) => { if (slot.kind === "Binder" && slot.range === null && !slot.rest) found.set(slot.name, found.has(slot.name) && found.get(slot.name) !== shape[n] ? NaN : shape[n]); });
    }
    return new Map([...found].filter(([, size]) => !Number.isNaN(size)));
  },
});
