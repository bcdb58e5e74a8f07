// A word for each row of weights, by the thresholds that `ix patterns` has.
"use strict";

// The heads of a table of weights and the word of every row; none where they are no distributions.
function patternsOf(table, { query, key, coordinates }) {
  const none = { heads: [], words: {} };
  const [queries, keys] = [table.shape[query], table.shape[key]];
  const others = coordinates.map((_, n) => n).filter((n) => n !== query && n !== key);
  const heads = [...placesOf(others.map((n) => table.shape[n]))].map((at) => {
    const place = [];
    others.forEach((n, m) => { place[n] = at[m]; });
    const rows = Array.from({ length: queries }, (_, q) => Array.from({ length: keys }, (__, k) => {
      place[query] = q;
      place[key] = k;
      return Number(table.values[offsetOf(table.shape, place)]);
    }));
    return { at: Object.fromEntries(others.map((n, m) => [coordinates[n], at[m]])), place: at, rows };
  });
  const isSound = (row) => row.every(Number.isFinite) && [0, 1].some((whole_) => Math.abs(row.reduce((sum, value) => sum + value, 0) - whole_) <= (whole_ === 1 ? 1e-3 : 1e-8));
  if (!heads.every(({ rows }) => rows.every(isSound))) return none;
  const words = others.length === 0 ? rowWords(heads[0].rows, keys) : [];
  for (const head of heads) {
    head.words = rowWords(head.rows, keys);
    let inside = words;
    head.place.forEach((at, n) => {
      if (n === head.place.length - 1) inside[at] = head.words;
      else inside = inside[at] ??= [];
    });
  }
  return { heads: heads.map(({ at, words: found }) => ({ at, word: commonest(found) })), words };
}

function commonest(words) {
  const counts = new Map();
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  const most = Math.max(...counts.values());
  const found = [...counts].filter(([, count]) => count === most);
  return found.length === 1 ? found[0][0] : null;
}

// The word of every row of one head: the first that holds.
function rowWords(rows, keys) {
  const limit = WORDS.thresholds;
  const first = Math.max(0, keys - rows.length);
  const isCausal = rows.every((row, q) => row.every((weight, k) => weight === 0 || k <= first + q));
  const isKnown = rows.length > 1;
  return rows.map((row, q) => {
    const position = first + q;
    const total = row.reduce((sum, weight) => sum + weight, 0);
    if (row.every((weight) => weight === 0)) return "silent";
    if (row.some((weight) => weight < 0) || Math.abs(total - 1) > WORDS.tolerance) return "not a distribution";
    const reach = isCausal ? Math.min(position + 1, keys) : keys;
    const at = (k) => (k >= 0 && k < keys ? row[k] : 0);
    const even = 1 / (position + 1);
    const radius = Math.max(limit.radius, Math.floor(limit.wide * reach));
    const [low, high] = [Math.max(position - radius, 0), Math.min(position + radius + 1, reach)];
    const ranked = row.map((weight) => weight / total).sort((a, b) => b - a);
    let [sum, carrying] = [0, 1];
    for (const share of ranked) {
      sum += share;
      if (sum < limit["nearly all"]) carrying += 1;
    }
    const tests = {
      uniform: keys > 1 && row.every((weight) => Math.abs(weight * keys - 1) <= limit.near),
      "causal-average": isKnown && position > 0 && position + 1 < keys && row.every((weight, k) => Math.abs(weight - (k <= position ? even : 0)) <= limit.near * (k <= position ? even : 0)),
      "previous-token": isKnown && at(position - 1) >= limit.most,
      "first-token sink": isKnown && position > 0 && at(0) >= limit.most,
      peaked: Math.max(...row) >= limit.peak,
      local: isKnown && Math.max(high - low, 0) <= limit.narrow * reach && row.slice(low, high).reduce((found, weight) => found + weight, 0) >= limit.most,
      sparse: row.filter((weight) => weight > 0).length <= limit["few heard"] * reach || Math.min(carrying, keys) <= limit["few carrying"] * reach,
    };
    return WORDS.patterns.find((word) => tests[word]) ?? "mixed";
  });
}
