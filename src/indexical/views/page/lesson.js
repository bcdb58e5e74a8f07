// A lesson: its prose, and questions that are checked against the program.
"use strict";

const TAGS = { p: "p", h1: "h1", h2: "h2", h3: "h3", ul: "ul", ol: "ol", li: "li", em: "em", strong: "strong", code: "code", pre: "pre", quote: "blockquote" };

// The prose of a lesson: a tree of a few kinds of nodes, each of them text.
function prose(block) {
  return el("div", { class: "prose" }, block.nodes.map(node));
}

function node(found) {
  if (typeof found === "string") return found;
  const [kind, ...inside] = found;
  return el(Object.hasOwn(TAGS, kind) ? TAGS[kind] : "span", {}, inside.map(node));
}

const backticked = (text) => text.split("`").map((part, n) => (n % 2 ? el("code", {}, part) : part));

function question(block) {
  const page = PAGES[block.program] ?? PAGES[0];
  if (block.answer === null) {
    return el("details", { class: "question" }, el("summary", {}, backticked(block.prompt)), el("div", { class: "prose" }, block.reveal.map(node)));
  }
  const verdict = el("p", { class: "answer", role: "status" });
  const several = block.answer.length > 1 ? ` (${block.answer.length} numbers)` : "";
  const input = el("input", { type: "text", autocomplete: "off", "aria-label": `your answer${several}`, placeholder: several.slice(2, -1) });
  const words = el("div", { class: "prose", hidden: true }, block.reveal.map(node));
  const show = () => {
    page.select(block.name, block.place, true);
    page.panel.querySelector("h2").focus({ preventScroll: true });
  };
  const form = el("form", {
    class: "question",
    onsubmit: (event) => {
      event.preventDefault();
      const typed = input.value.split(/[\s,;]+/).filter((part) => part !== "");
      const right = typed.length === block.answer.length && typed.every((text, n) => isRight(text, block.answer[n]));
      form.dataset.right = String(right);
      const most = typed.length === block.answer.length || typed.length === 0 ? "" : `It is ${block.answer.length === 1 ? "one number" : `${block.answer.length} numbers`}. `;
      verdict.replaceChildren(right ? "Right. " : `Not yet. ${most}`, button("show how it comes about", {}, show));
      if (right) page.select(block.name, block.place, true);
      words.hidden = !right;
    },
  }, el("label", {}, backticked(block.prompt), " ", input), button("check", { type: "submit" }, () => {}), verdict, words);
  return form;
}

// A typed answer is checked as a published figure is: a decimal claims half a unit of its last digit on either side.
function isRight(text, answer) {
  const near = 1e-12 * Math.max(1, Math.abs(answer));
  const fraction = /^(-?\d+)\/(\d+)$/.exec(text);
  if (fraction) return Math.abs(Number(fraction[1]) / Number(fraction[2]) - answer) <= near;
  if (!/^[-−+]?(\d+(\.\d+)?|\.\d+)$/.test(text)) return false;
  const places = text.includes(".") ? text.length - text.indexOf(".") - 1 : 0;
  const room = places ? 0.5 * 10 ** -places : 0;
  return Math.abs(Number(text.replace("−", "-")) - answer) <= room + near;
}
