// The caption: what happens on this beat, in one sentence.
"use strict";

Object.assign(Page.prototype, {
  say(trace, beats, now) {
    if (this.isEmpty(trace.name)) {
      const { tensor, shape } = this.tables.get(trace.name);
      const empty = tensor.coordinates.filter((_, n) => shape[n] === 0);
      return [el("b", {}, trace.name), " has no points: ", joined(empty.map((name) => this.coordinate(bare(name)))), empty.length === 1 ? " is empty." : " are empty."];
    }
    const word = beats[now]?.word;
    const key = label(trace.name, trace.place);
    const value = el("b", {}, this.brief(trace.name, trace.place));
    if (word === undefined) return [el("b", {}, trace.name), " is given in the text."];
    if (this.voice !== "plain") return [el("code", {}, key), trace.masked ? " is masked: " : ` = `, trace.masked ? this.whyAbsent(trace) : [this.formula(trace.clause.text), " = ", value], ...(trace.masked ? [] : [" · ", this.coded(this.steps.find((step) => step.name === trace.name)?.words ?? "")])];
    if (trace.masked) return ["There is no number here: ", this.whyAbsent(trace), "."];
    const words = this.attentionCaption(trace, word, value) ?? this.plainCaption(trace, word, value, now);
    const itself = readsIn(trace.clause.body).some((read) => read[1] === trace.name);
    return itself && now === 0 ? [...words, " ", el("b", {}, trace.name), " reads itself, earlier."] : words;
  },

  plainCaption(trace, word, value, now) {
    const scan = trace.scans[Math.max(0, trace.scans.length > 1 ? now - 1 : 0)];
    const over = () => [...new Set(scan.names.map((name) => (this.noun(name) === bare(name) ? bare(name) : `the ${this.plural(name)}`)))].join(" and ");
    const isLast = now === this.beatsOf(trace).length - 1;
    const result = () => (isLast ? [": ", value] : [": ", el("b", {}, short(scan.value))]);
    switch (word) {
      case "line up": return ["Line up what ", el("code", {}, label(trace.name, trace.place)), " reads", this.sourceNames(trace), "."];
      case "multiply": return scan?.op === "prod" ? [`Multiply them all, over ${over()}`, result(), "."] : ["Multiply them, one ", this.noun(scan.names.at(-1)), " at a time."];
      case "add up": return [trace.scans.length === 1 && (scan.op === "softmax" || scan.op === "log_softmax") ? "Lay them end to end: this is the whole." : [`Added up over ${over()}`, scan.op === "cumsum" ? ", up to here" : "", result(), "."]];
      case "average": return [`Averaged over ${over()}`, result(), "."];
      case "compare": return [`Compared over ${over()}: ${OPERATIONS_IN_WORDS[scan.op]} is `, isLast ? value : el("b", {}, short(scan.value)), "."];
      case "ask": return [`Asked over ${over()}: ${OPERATIONS_IN_WORDS[scan.op]}`, result(), "."];
      case "order": return ["In decreasing order, this is place ", value, ", counted from 0."];
      case "raise": return ["Raise e to each number: all become positive, and the largest stands out."];
      case "share": return ["Call the whole 100\u202f%. The part of ", this.named(scan.names[0], trace.point[scan.names[0]]), " is ", value, "."];
      case "logarithm": return ["Divide by the whole, and take the logarithm: ", value, "."];
      case "take over": return ["It is taken over as it is: ", value, "."];
      default: return [trace.clause.body[0] === "if" && trace.scans.length === 0 ? this.formula(trace.clause.text) : this.shallow(trace), " = ", value, "."];
    }
  },

  // The same for queries, keys and values, in the words of who listens to whom.
  attentionCaption(trace, word, value) {
    const { gather } = this;
    const part = this.parts.get(trace.name);
    if (gather === undefined || trace.point[gather.query] === undefined) return null;
    const listener = () => this.named(gather.query, trace.point[gather.query]);
    const heard = () => this.named(gather.key, trace.point[gather.key]);
    if (part === "scores" && trace.point[gather.key] !== undefined) {
      if (word === "line up") return ["Line up what ", listener(), " looks for with what ", heard(), " can be found by."];
      if (word === "scale" || word === "finish") return [this.shallow(trace), trace.clause.text.includes("sqrt(size(") ? ", so that longer rows do not shout. " : ". ", heard(), " scores ", value, " for ", listener(), "."];
    }
    if (part === "weights" && trace.point[gather.key] !== undefined) {
      if (word === "line up") return ["Line up how well each matches what ", listener(), " looks for."];
      if (word === "share") return ["Call the whole length 100\u202f%. ", heard(), "’s part of it is ", value, "."];
    }
    if (part === "heard") {
      if (word === "line up") return ["Line up what each hands on, with how much ", listener(), " listens to it."];
      if (word === "weigh") return ["Take of each only its share."];
      if (word === "mix") return ["Added up, ", listener(), " takes away ", value, "."];
    }
    return null;
  },

  plural(name) {
    const noun = this.noun(name);
    return noun === bare(name) ? noun : noun.endsWith("s") ? noun : noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`;
  },

  sourceNames(trace) {
    const names = [...new Set(this.operandsOf(trace.name).map((operand) => operand.name))].filter((name) => name !== trace.name);
    return names.length === 0 ? "" : [" of ", joined(names.slice(0, 4).map((name) => el("b", {}, name)), ", "), names.length > 4 ? " and others" : ""];
  },
});
