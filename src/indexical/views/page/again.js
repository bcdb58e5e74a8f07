// All numbers again, after an input was changed.
"use strict";

// Every definition again, from the tables of the inputs; each cell when it is asked for, so that recurrences find what
// they read. False where it takes too long.
Relation.prototype.again = function again(names, most) {
  const start = performance.now();
  let count = 0;
  const tables = names.map((name) => [name, this.tensors.get(name)]).filter(([name, table]) => table !== undefined && this.page.relation[name] !== undefined);
  for (const [name, table] of tables) {
    const [state, masked] = [new Uint8Array(table.size), new Uint8Array(table.size)];
    table.values = table.values.slice();
    table.mask = (offset) => { table.demand?.(offset); return masked[offset] === 1; };
    table.demand = (offset) => {
      if (state[offset] !== 0) return;
      state[offset] = 1;
      count += 1;
      if (count % 256 === 0 && performance.now() - start > most) throw new Overtime();
      const found = this.clauseAt(name, placeOf(table.shape, offset));
      const isOut = found === null || (found.clause.guard !== null && !this.value(found.clause.guard, found.point));
      masked[offset] = Number(isOut || this.isMasked(found.clause.body, found.point) || this.isLogOfNothing(found.clause.body, found.point));
      table.values[offset] = isOut ? 0 : this.value(found.clause.body, found.point);
    };
  }
  try {
    for (const [, table] of tables) for (let offset = 0; offset < table.size; offset += 1) table.demand(offset);
    return true;
  } catch (problem) {
    if (problem instanceof Overtime || problem instanceof RangeError) return false;
    throw problem;
  } finally {
    for (const [, table] of tables) table.demand = undefined;
  }
};

// A logarithm of a weight that the guard removed: minus infinity as a number, and no cell.
Relation.prototype.isLogOfNothing = function isLogOfNothing([kind, op, , , guard], point) {
  return kind === "normalize" && op === "log_softmax" && guard !== null && !this.value(guard, point);
};

class Overtime extends Error {}
