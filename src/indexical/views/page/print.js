// Print: every step of every program, one after the other, as the stage shows it when it is done.
"use strict";

const MOST_PRINTED = 40;

function layOut() {
  putAway();
  for (const page of PAGES) {
    const { scene, here, path, beat } = page;
    const sheets = page.steps.slice(0, MOST_PRINTED).map((step) => {
      page.scene = step.name;
      page.settle(step.name);
      page.beat = page.beats().length;
      page.drawStage();
      return el("section", { class: "sheet" }, el("h2", {}, el("code", {}, step.name), ` ${page.gloss(step.name)}`), el("p", { class: "caption" }, [...page.caption.childNodes].map((node) => node.cloneNode(true))), page.zones.cloneNode(true));
    });
    copyPictures(page, sheets);
    Object.assign(page, { scene, here, path, beat });
    page.drawStage();
    page.root.append(el("div", { class: "sheets" }, sheets));
  }
}

// A copy of a canvas is empty: small pictures and colours are painted again.
function copyPictures(page, sheets) {
  for (const canvas of sheets.flatMap((sheet) => [...sheet.querySelectorAll("canvas")])) {
    const figure = canvas.closest("figure.tensor");
    const table = page.tables.get(figure.dataset.tensor);
    const lead = canvas.classList.contains("heat") ? page.placeOn(figure.dataset.tensor).slice(0, -2) : null;
    if (lead === null) canvas.remove();
    else paint(canvas, table, lead, 1024);
  }
}

function putAway() {
  for (const sheets of document.querySelectorAll(".sheets")) sheets.remove();
}
