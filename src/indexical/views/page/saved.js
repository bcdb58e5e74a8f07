// The page as a file, with what was changed in it: it opens to the same, and Reset leads back to the original.
"use strict";

function savePage() {
  const copy = document.documentElement.cloneNode(true);
  copy.querySelector("#page").replaceChildren();
  copy.querySelector(".to-text")?.remove();
  const data = JSON.parse(document.getElementById("data").textContent);
  data.opens = activePage().address().slice(1);
  // As the page was written: nothing in the text can end its element or start markup.
  copy.querySelector("#data").textContent = JSON.stringify(data).replace(/[<>&\u2028\u2029]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
  save(new Blob([`<!doctype html>\n${copy.outerHTML}\n`], { type: "text/html" }), `${fileName(document.title)}.html`);
}

const fileName = (title) => title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "_").replace(/^_+|_+$/g, "").slice(0, 60) || "indexical";
