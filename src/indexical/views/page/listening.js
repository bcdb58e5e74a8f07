// Who listens to whom, as numbers: the weight that a query gives a key, what it carries, and a sentence about it.
"use strict";

Object.assign(Page.prototype, {
  // Head, batch and the like, where they stand now.
  apartOf(gather) {
    const table = this.tables.get(gather.definition);
    return Object.fromEntries(gather.apart.map((name) => [name, bounded(this.here[bare(name)] ?? 0, 0, table.shape[gather.home.indexOf(name)] - 1)]));
  },

  queriesOf(gather) {
    return this.tables.get(gather.definition).shape[gather.home.indexOf(gather.query)];
  },

  keysOf(gather, query) {
    return gather.keys.map((bound) => this.relation.value(bound, { ...this.apartOf(gather), [gather.query]: query }));
  },

  // How strongly a query hears a key; null where it does not listen there at all, NaN where it is not known.
  strength(gather, query, key, by = "weight") {
    const point = { ...this.apartOf(gather), [gather.query]: query };
    const range = gather.keys.map((bound) => this.relation.value(bound, point));
    if (key < range[0] || key >= range[1] || (gather.where && !this.relation.value(gather.where, point))) return null;
    Object.assign(point, { [gather.key]: key, [`range of ${gather.key}`]: range });
    if (gather.guard !== null && !this.relation.value(gather.guard, point)) return null;
    if (this.relation.isMasked(gather.weight, point)) return null;
    const weight = Number(this.relation.value(gather.weight, point));
    if (by === "weight") return weight;
    const table = this.tables.get(gather.definition);
    const carried = [...placesOf(gather.carry.map((name) => table.shape[gather.home.indexOf(name)]))].map((place) => {
      const inner = { ...point, ...Object.fromEntries(gather.carry.map((name, n) => [name, place[n]])) };
      return { inner, value: weight * gather.values.reduce((product, value) => product * Number(this.relation.value(value, inner)), 1) };
    });
    if (by === "carried" || gather.after === null) return Math.hypot(...carried.map((entry) => entry.value));
    return this.strengthAfter(gather, carried);
  },

  // The length of what is carried, after the matrix that takes it on.
  strengthAfter(gather, carried) {
    const { after } = gather;
    const table = this.tables.get(after.definition);
    const features = after.features.filter((name) => !after.home.includes(name));
    const sizes = features.map((name) => table.shape[table.tensor.coordinates.indexOf(name)]);
    const lengths = [...placesOf(sizes)].map((place) => {
      const there = Object.fromEntries(features.map((name, n) => [name, place[n]]));
      return carried.reduce((found, { inner, value }) => {
        const at = Object.fromEntries(after.home.map((name, n) => [name, inner[gather.home[n]]]));
        return found + value * Number(this.relation.value(after.matrix, { ...at, ...there }));
      }, 0);
    });
    return Math.hypot(...lengths);
  },

  // What a query hears: its keys that are there, with weights and whole percentages where they are shares.
  heard(gather, query) {
    this.heardRows ??= new Map();
    const id = `${gather.definition} ${Object.values(this.apartOf(gather))} ${query} ${this.by} ${this.version ?? 0}`;
    if (!this.heardRows.has(id)) {
      const [low, high] = this.keysOf(gather, query);
      const found = [];
      for (let key = low; key < high; key += 1) {
        const weight = this.strength(gather, query, key);
        if (weight !== null) found.push({ key, weight, strength: this.by === "weight" ? weight : this.strength(gather, query, key, this.by) });
      }
      const total = found.reduce((sum, { weight }) => sum + weight, 0);
      const isShared = found.length > 0 && found.every(({ weight }) => weight >= 0) && Math.abs(total - 1) < 1e-3;
      if (isShared) percents(found.map(({ weight }) => weight)).forEach((share, n) => { found[n].percent = share; });
      if (this.heardRows.size > 2000) this.heardRows.clear();
      this.heardRows.set(id, found);
    }
    return this.heardRows.get(id);
  },

  // The last query and the key that it hears most.
  strongest(gather) {
    const query = this.here[bare(gather.query)] ?? Math.max(0, this.queriesOf(gather) - 1);
    const best = this.heard(gather, query).reduce((most, entry) => (most === null || entry.weight > most.weight ? entry : most), null);
    return best === null ? { [bare(gather.query)]: query } : { [bare(gather.query)]: query, [bare(gather.key)]: best.key };
  },

  // A sentence with one subject and one number; the others in a second line. Percentages make 100.
  sentence(gather, query, key) {
    const heard = this.heard(gather, query);
    const who = this.named(gather.query, query);
    const whom = (at) => (at === query && this.isSelf(gather) ? el("b", { class: `c${this.colours.get(bare(gather.key))}` }, "itself") : this.named(gather.key, at));
    const chosen = heard.find((entry) => entry.key === key) ?? heard.reduce((most, entry) => (most === null || entry.weight > most.weight ? entry : most), null);
    if (chosen === null) return [who, " hears nobody", el("small", {}, this.keysOf(gather, query)[0] < this.keysOf(gather, query)[1] ? "Everything is masked for it." : "There is nobody to hear.")];
    if (key !== undefined && key !== chosen.key) return [who, " cannot hear ", this.named(gather.key, key), el("small", {}, "There is no number there at all.")];
    if (this.voice !== "plain" && gather.tensor !== null) {
      const point = { ...this.apartOf(gather), [gather.query]: query, [gather.key]: chosen.key };
      return [el("code", {}, label(gather.tensor.name, gather.tensor.coordinates.map((name) => point[name]))), ` = ${decimal(chosen.weight)}`, el("small", {}, `${gather.query} asks, ${gather.key} answers; gathered in ${gather.definition}`)];
    }
    if (!Number.isFinite(chosen.weight)) return [who, " hears ", whom(chosen.key), el("small", {}, "How much is not known: the weight has a symbol in it.")];
    if (chosen.percent === undefined) return [who, " hears ", whom(chosen.key), " with ", el("b", {}, short(chosen.weight)), el("small", {}, chosen.weight < 0 ? "A weight below 0 takes away: its line is broken. These weights are no shares." : "These weights are no shares: they do not make 100 %.")];
    const rest = heard.filter((entry) => entry !== chosen).sort((a, b) => b.percent - a.percent || b.weight - a.weight);
    const said = [who, " takes ", el("b", {}, `${chosen.percent} %`), " from ", whom(chosen.key)];
    if (rest.length === 0) return [...said, el("small", {}, "There is nobody else that it can hear.")];
    const shown = rest.length <= 4 ? rest : rest.slice(0, 3);
    const parts = shown.map((entry) => [`${entry.percent} % from `, whom(entry.key)]);
    if (shown.length < rest.length) parts.push([`${rest.slice(3).reduce((sum, entry) => sum + entry.percent, 0)} % from ${rest.length - 3} others`]);
    const list = parts.flatMap((part, n) => (n === 0 ? [part] : n === parts.length - 1 ? [" and ", part] : [", ", part]));
    return [...said, el("small", {}, "and ", list, ". ", parts.length < 4 ? el("span", { class: "spare" }, "Together, 100\u00a0%.") : "")];
  },

  // Whether queries and keys are the same points: then one row of them is drawn.
  isSelf(gather) {
    const space = (name) => this.data.coordinates.find((entry) => entry.name === bare(name))?.space;
    const queries = this.queriesOf(gather);
    const isSame = space(gather.key) === undefined || (space(gather.query) !== null && space(gather.query) === space(gather.key));
    return isSame && this.keysOf(gather, queries - 1)[1] <= queries;
  },
});
