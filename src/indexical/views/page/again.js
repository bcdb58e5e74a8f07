// All numbers again, after an input was changed.
"use strict";

// Every definition again, from the tables of the inputs; each cell when it is asked for, so that recurrences find what
// they read. Returns why it cannot be done, and nothing where it was; `failed` then names the definition. With `check`,
// for a program that the compiler has not seen, every cell is looked at once more by it.
Relation.prototype.again = function again(names, most, check = null) {
  const start = performance.now();
  const inside = [];
  let count = 0;
  this.isChecked = true;
  this.rows = new Map();
  this.spend = () => {
    count += 1;
    if (count % 256 === 0 && performance.now() - start > most) throw new Impossible("This takes too long to follow in the page");
  };
  const tables = names.map((name) => [name, this.tensors.get(name)]).filter(([name, table]) => table !== undefined && this.page.relation[name] !== undefined);
  for (const [name, table] of tables) {
    const [state, masked] = [new Uint8Array(table.size), new Uint8Array(table.size)];
    table.values = table.values.slice();
    table.mask = (offset) => { table.demand?.(offset); return masked[offset] === 1; };
    table.demand = (offset) => {
      if (state[offset] === 2) return;
      if (state[offset] === 1) throw new Impossible(`${label(name, placeOf(table.shape, offset))} would be needed for itself`);
      state[offset] = 1;
      inside.push(name);
      this.spend();
      const found = this.clauseAt(name, placeOf(table.shape, offset));
      const isOut = found === null || (found.clause.guard !== null && !this.value(found.clause.guard, found.point));
      masked[offset] = Number(isOut || this.isMasked(found.clause.body, found.point) || this.isLogOfNothing(found.clause.body, found.point));
      table.values[offset] = isOut ? 0 : this.value(found.clause.body, found.point);
      check?.(name, offset, found, isOut);
      inside.pop();
      state[offset] = 2;
    };
  }
  try {
    for (const [, table] of tables) for (let offset = 0; offset < table.size; offset += 1) table.demand(offset);
    return "";
  } catch (problem) {
    this.failed = inside.at(-1);
    if (problem instanceof Impossible) return problem.message;
    if (problem instanceof RangeError) return "This recurrence is too deep to follow in the page";
    throw problem;
  } finally {
    this.isChecked = false;
    this.spend = undefined;
    this.rows = undefined;
    for (const [, table] of tables) table.demand = undefined;
  }
};

// A logarithm of a weight that the guard removed: minus infinity as a number, and no cell.
Relation.prototype.isLogOfNothing = function isLogOfNothing([kind, op, , , guard], point) {
  return kind === "normalize" && op === "log_softmax" && guard !== null && !this.value(guard, point);
};

class Impossible extends Error {}
