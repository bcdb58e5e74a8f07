// Questions: what is typed is read as a number in any usual form, judged at its own precision, and answered from the trace.
"use strict";

function question(block) {
  if (block.answer === null) {
    return el("details", { class: "question" }, el("summary", {}, block.prompt.map(node)), el("div", { class: "prose" }, block.reveal.map(node)));
  }
  const page = PAGES[block.program] ?? PAGES[0];
  const count = block.answer.length;
  const verdict = el("div", { class: "answer", role: "status" });
  const several = count > 1 ? `${count} numbers` : "";
  const input = el("input", { type: "text", autocomplete: "off", "aria-label": `your answer${several && `: ${several}`}`, placeholder: several });
  const words = el("div", { class: "prose", hidden: true }, block.reveal.map(node));
  const show = button("show how it comes about", {}, () => {
    active = page.number;
    page.select(block.name, block.place, true);
    page.panel.querySelector("h2").focus({ preventScroll: true });
    wayBack(input);
  });
  let tries = 0;
  const form = el("form", { class: "question", onsubmit: (event) => {
    event.preventDefault();
    const table = page.tables.get(block.name);
    const start = table.offset(block.place);
    const answers = block.answer.map((_, n) => Number(table.values[start + n]));
    const printed = answers.map((_, n) => page.percentAt(block.name, placeOf(table.shape, start + n)));
    const { right, at, typed } = judged(input.value, answers, block.places, printed);
    if (right === "false" && at !== null) tries += 1;
    form.dataset.right = right;
    const place = placeOf(table.shape, start + (at ?? 0));
    const said = right === "true" ? rightWords(page, block.name, placeOf(table.shape, start), count)
      : right === "near" ? `Right as far as it goes: ${block.places} places, please. ` : at === null ? howToType(input.value, count) : hint(page, block.name, place, typed, tries, count);
    verdict.replaceChildren(el("p", {}, said), ...(right === "true" || tries > 0 ? [show] : []));
    words.hidden = right !== "true";
  } }, el("label", {}, el("span", { class: "prompt" }, block.prompt.map(node)), input), button("check", { type: "submit" }, () => {}), verdict, words);
  return form;
}

function rightWords(page, name, place, count) {
  const table = page.tables.get(name);
  const exact = count === 1 ? table.tensor.exact?.[table.offset(place)] : undefined;
  const value = decimal(Number(table.at(place)));
  return exact === undefined || exact === value || exact.length > 60 ? "Right. " : ["Right: exactly ", el("code", {}, exact), ", about ", value, ". "];
}

const howToType = (text, count) => (text.trim() === "" ? "Type a number: " : count > 1 ? `${count} numbers, with blanks between them: ` : "That is no number to the page. It reads ") + "0.25 or 0,25, 25 %, 1/4, e/(2+e), sqrt(2). ";

// --------------------------------------------------------------------- judging

// Whether all numbers are right; where not, the number of the first that is wrong and what was typed for it.
// A percentage that the page prints is right as well, since those of a row are rounded so that they make 100.
function judged(text, answers, places, printed = []) {
  const readings = split(text, answers.length).map((parts) => parts.map(readNumber)).filter((numbers) => numbers.length === answers.length && numbers.every((found) => found !== null));
  if (readings.length === 0) return { right: "false", at: null, typed: null };
  const wrong = readings.map((numbers) => numbers.findIndex((found, n) => !fits(found, answers[n]) && !(found.places === 2 && typeof printed[n] === "number" && Math.abs(100 * found.value - printed[n]) < 1e-9)));
  const best = readings[wrong.indexOf(-1)];
  if (best === undefined) return { right: "false", at: wrong[0], typed: readings[0][wrong[0]] };
  const isCoarse = best.some((found, n) => found.places !== null && found.places < places && Math.abs(found.value - answers[n]) > 1e-12 * Math.max(1, Math.abs(answers[n])));
  return { right: isCoarse ? "near" : "true", at: null, typed: null };
}

// A comma is a decimal comma or stands between two numbers: all readings that have the right count are tried.
function split(text, count) {
  const clean = text.replace(/²/g, "^2").normalize("NFKC").replace(/^\s*[[(](?=.*[,;\s])(.*)[\])]\s*$/u, count > 1 ? "$1" : "$&").trim();
  if (count === 1) return [[clean]];
  return [/\s*;\s*|,\s+|\s+and\s+/u, /[,;]?\s+/u, /\s*,\s*/u].map((between) => clean.split(between).filter((part) => part !== ""));
}

// A decimal claims half a unit of its last digit on either side; a whole number, a fraction and a formula are exact.
function fits({ value, places }, answer) {
  const room = places ? 0.5 * 10 ** -places : 0;
  return Math.abs(value - answer) <= room + 1e-9 * Math.max(1e-3, Math.abs(answer));
}

// The number that a text stands for, and the decimal places that it claims, if it is a figure and no formula.
function readNumber(text) {
  const plain = text.replace(/²/g, "^2").normalize("NFKC").replace(/[−–]/g, "-").replace(/[·×]/g, "*").replace(/[÷:⁄]/g, "/").replace(/^\s*[=≈]\s*/u, "");
  const typed = /^\s*([-+]?(?:\d+(?:[.,](\d+))?|[.,](\d+)))\s*(%?)\s*$/.exec(plain);
  if (typed !== null) {
    const digits = (typed[2] ?? typed[3] ?? "").length + (typed[4] ? 2 : 0);
    return { value: Number(typed[1].replace(",", ".")) / (typed[4] ? 100 : 1), places: digits };
  }
  const value = new Formula(plain).value();
  return value === null || !Number.isFinite(value) ? null : { value, places: null };
}

const CONSTANTS = new Map([["e", Math.E], ["pi", Math.PI], ["π", Math.PI]]);
const CALLS = new Map([["exp", Math.exp], ["sqrt", Math.sqrt], ["√", Math.sqrt], ["ln", Math.log], ["log", Math.log]]);

// Arithmetic as people type it: + - * / ^ ( ) %, e, pi, exp, sqrt, ln; `2e` is 2 times e.
class Formula {
  constructor(text) {
    this.tokens = text.length > 200 ? null : text.match(/\d+(?:[.,]\d+)?|[.,]\d+|\*\*|[a-zπ√]+|[-+*/^()%]|\S/giu);
    this.at = 0;
  }

  value() {
    if (this.tokens === null) return null;
    const found = this.sum();
    return this.at === this.tokens.length && !this.isBroken ? found : null;
  }

  take(...wanted) {
    if (!wanted.includes(this.tokens[this.at])) return null;
    this.at += 1;
    return this.tokens[this.at - 1];
  }

  sum() {
    let found = this.product();
    for (let sign = this.take("+", "-"); sign !== null; sign = this.take("+", "-")) found += (sign === "+" ? 1 : -1) * this.product();
    return found;
  }

  product() {
    let found = this.signed();
    for (;;) {
      const sign = this.take("*", "/");
      if (sign === "/") found /= this.signed();
      else if (sign === "*" || /^[a-zπ√(]/iu.test(this.tokens[this.at] ?? "")) found *= this.signed();
      else return found;
    }
  }

  signed() {
    const sign = this.take("+", "-");
    if (sign !== null) return (sign === "-" ? -1 : 1) * this.signed();
    const base = this.atom();
    return this.take("^", "**") === null ? base : base ** this.signed();
  }

  atom() {
    const token = this.tokens[this.at] ?? "";
    this.at += 1;
    const known = CONSTANTS.get(token.toLowerCase());
    const call = CALLS.get(token.toLowerCase());
    let found = NaN;
    if (/^[\d.,]/.test(token)) found = Number(token.replace(",", "."));
    else if (known !== undefined) found = known;
    else if (token === "(") {
      found = this.sum();
      this.isBroken ||= this.take(")") === null;
    } else if (call !== undefined) found = call(this.atom());
    else this.isBroken = true;
    return this.take("%") === null ? found : found / 100;
  }
}

// ----------------------------------------------------------------------- hints

// What to look at, from how the number comes about: first what the typed number is, else the terms, then their figures.
function hint(page, name, place, typed, tries, count) {
  const trace = page.traceAt(name, place);
  const which = count > 1 ? ["About ", linkTo(page, name, place), ": "] : [];
  const said = slip(page, trace, typed) ?? (tries > 1 ? figures(page, trace) : null) ?? outline(page, trace);
  return [...which, ...said, " "];
}

const linkTo = (page, name, place) => cellLink(page.number, name, place, label(name, place));

const isClose = (typed, value) => Number.isFinite(value) && (fits(typed, value) || Math.abs(typed.value - value) <= 1e-9 * Math.max(1, Math.abs(value)));

// What the typed number is in place of the answer: a usual slip that its own trace has.
function slip(page, trace, typed) {
  const table = page.tables.get(trace.name);
  const value = Number(table.at(trace.place));
  if (value !== 0 && isClose(typed, -value)) return ["Nearly: look at the sign again."];
  if (typed.value !== 0 && isClose({ ...typed, value: typed.value / 100, places: typed.places === null ? null : typed.places + 2 }, value)) return [`That is the percentage: write it with a %, as ${typed.value} %.`];
  const unit = typed.places ? 10 ** -typed.places : 0;
  if (unit && Math.abs(typed.value - value) < 1.6 * unit) return ["Very close: look at how the last digit is rounded."];
  const scan = trace.scans[0];
  const found = scan === undefined ? null : slipOfScan(page, scan, typed);
  if (found !== null) return found;
  for (let offset = 0; offset < Math.min(table.size, 400); offset += 1) {
    const place = placeOf(table.shape, offset);
    if (typed.value !== 0 && !table.mask(offset) && isClose(typed, Number(table.values[offset])) && String(place) !== String(trace.place)) return ["That is ", linkTo(page, trace.name, place), ", not ", label(trace.name, trace.place), "."];
  }
  return null;
}

function slipOfScan(page, scan, typed) {
  const terms = scan.terms.filter((term) => !term.masked);
  const point = (term) => scan.names.map((name, n) => `${bare(name)} = ${page.called(name, term.at[n])}`).join(", ");
  if (scan.op === "softmax") {
    const here = terms.find((term) => term.here);
    if (here !== undefined && isClose(typed, Number(here.value))) return ["That is its score. Raise e to it, and divide by the sum of that over the whole row."];
    if (here !== undefined && isClose(typed, Math.exp(Number(here.value)))) return ["That is e to its score. It is still to be divided, by the sum of that over the whole row."];
    return null;
  }
  if (scan.op !== "sum" || terms.length < 2) return null;
  const one = terms.find((term) => Number(term.value) !== 0 && isClose(typed, Number(term.value)));
  if (one !== undefined) return [`That is the term at ${point(one)} alone. There are ${terms.length} to add up.`];
  const missed = terms.find((term) => Number(term.value) !== 0 && isClose(typed, Number(scan.value) - Number(term.value)));
  return missed === undefined ? null : [`That leaves out the term at ${point(missed)}.`];
}

// What is read and what is done with it, without a figure.
function outline(page, trace) {
  const scan = trace.scans[0];
  if (trace.clause === null || trace.clause.body[0] === "array" || trace.clause.body[0] === "const") return ["It is given, not computed: look it up at ", linkTo(page, trace.name, trace.place), "."];
  if (scan === undefined) return ["It is ", el("code", {}, trace.clause.text), ". Look at ", joined(page.relation.sources(trace).slice(0, 4).map((read) => linkTo(page, read.name, read.place)), " and "), "."];
  const terms = scan.terms.filter((term) => !term.masked);
  const most = terms.find((term) => term.here) ?? terms.reduce((best, term) => (Math.abs(Number(term.value)) > Math.abs(Number(best.value)) ? term : best), terms[0]);
  const reads = (most?.factors ?? []).flatMap((factor) => (factor.name === null ? factor.reads : [factor])).slice(0, 3);
  const over = scan.names.map(bare).join(" and ");
  const what = el("code", {}, textOf(scan.body));
  if (scan.op === "softmax") return ["Raise e to each of the ", `${terms.length} scores `, what, ", and see which part of the sum is this one's. Start with ", ...reads.slice(0, 1).map((read) => linkTo(page, read.name, read.place)), "."];
  const done = { sum: "Add up ", mean: "Take the mean of ", max: "Take the largest of ", min: "Take the smallest of " }[scan.op] ?? `Take ${scan.op} of `;
  return [done, what, ` over ${over}: ${terms.length === 1 ? "one term" : `${terms.length} terms`}${terms.length < scan.terms.length + scan.excluded.length ? ", the others are left out" : ""}. `, reads.length ? ["The largest term reads ", joined(reads.map((read) => linkTo(page, read.name, read.place)), " and "), "."] : ""];
}

// The arithmetic as a line of figures, without its result.
function figures(page, trace) {
  if (trace.clause === null || trace.clause.body[0] === "array" || trace.clause.body[0] === "const") return null;
  const line = new Writer(page.relation, (name, place) => page.numberAt(name, place)).line(trace.clause.body, trace.point);
  return line === null ? null : ["Work this out: ", el("code", {}, line), "."];
}
