// Weights made again from queries and keys, which travel in whole steps: a row when it is asked for, cells when near.
"use strict";

const MOST_ROWS_KEPT = 16;

class Remade {
  // `queries` and `keys` are rows of `rank` numbers; `heard(query, key)` is what the mask allows.
  constructor(rank, queries, keys, count, heard) {
    Object.assign(this, { rank, queries, keys, count, heard, rows: new Map() });
  }

  score(query, key) {
    const { rank, queries, keys } = this;
    let sum = 0;
    for (let n = 0, a = query * rank, b = key * rank; n < rank; n += 1) sum += queries[a + n] * keys[b + n];
    return sum;
  }

  // All weights of a row, shared out so that they make `total`.
  row(query, total) {
    const kept = this.rows.get(query);
    if (kept !== undefined) return kept;
    if (this.rows.size >= MOST_ROWS_KEPT) this.rows.delete(this.rows.keys().next().value);
    const found = new Float64Array(this.count).fill(-Infinity);
    let most = -Infinity;
    for (let key = 0; key < this.count; key += 1) {
      if (!this.heard(query, key)) continue;
      found[key] = this.score(query, key);
      most = Math.max(most, found[key]);
    }
    let sum = 0;
    for (let key = 0; key < this.count; key += 1) {
      found[key] = found[key] === -Infinity ? 0 : Math.exp(found[key] - most);
      sum += found[key];
    }
    for (let key = 0; key < this.count; key += 1) found[key] *= sum > 0 ? total / sum : 0;
    this.rows.set(query, found);
    return found;
  }

  // Some weights of a row against its largest, from one that is known.
  parts(query, from, to, known) {
    const most = this.score(query, known);
    return Float32Array.from({ length: to - from }, (_, n) => (this.heard(query, from + n) ? Math.exp(Math.min(0, this.score(query, from + n) - most)) : 0));
  }
}

// What is attached for a head; null where there is nothing.
async function remadeOf(data, number) {
  const entry = data.again?.heads[number] ?? null;
  if (entry === null) return null;
  const bytes = await inflated(bytesOf(document.getElementById(`again-${number}`).textContent));
  const { rank, steps } = entry;
  const count = rank * (data.queries + data.keys);
  const isWide = bytes.length > count;
  // Numbers come axis by axis, even for 0 and above, odd below.
  const rows = (start, size, step) => {
    const found = new Float32Array(size * rank);
    for (let axis = 0, at = start; axis < rank; axis += 1) {
      for (let row = 0; row < size; row += 1, at += 1) {
        const code = bytes[at] + (isWide ? 256 * bytes[count + at] : 0);
        found[row * rank + axis] = step * (code % 2 === 1 ? -(code + 1) / 2 : code / 2);
      }
    }
    return found;
  };
  const [queries, keys] = [rows(0, data.queries, steps[0]), rows(rank * data.queries, data.keys, steps[1])];
  return new Remade(rank, queries, keys, data.keys, await heardBy(data, entry.mask));
}

async function heardBy(data, mask) {
  if (mask === "all") return () => true;
  if (mask === "causal") return (query, key) => key <= query;
  const bits = await inflated(bytesOf(document.getElementById(mask).textContent));
  const wide = Math.ceil(data.keys / 8);
  return (query, key) => ((bits[query * wide + (key >> 3)] >> (key & 7)) & 1) === 1;
}
