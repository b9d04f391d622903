"use strict";
const SOURCES = {
  b: "the backbone", h: "the head, unverified", d: "a draft that was accepted",
  n: "the backbone, given by verification", r: "after it had been masked again",
};

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in made && key !== "list") made[key] = value; else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// The reveal of an answer: every token coloured by who revealed it, a slider over the rounds.
function trace(sample) {
  const last = Math.max(0, ...sample.step);
  const pieces = sample.tokens.map((token, i) => element("span", {
    title: `round ${sample.step[i]}, by ${SOURCES[sample.source[i]]}` +
      (sample.remasked[i] ? `; had been masked again ${sample.remasked[i]} times` : ""),
  }));
  const says = element("output", {});
  const slider = element("input", {
    type: "range", min: 0, max: last, value: last, step: 1, ariaLabel: "round of denoising",
  });
  function show() {
    const now = Number(slider.value);
    let revealed = 0, fresh = 0;
    pieces.forEach((piece, i) => {
      const there = sample.step[i] <= now;
      revealed += there;
      fresh += sample.step[i] === now;
      piece.textContent = there ? sample.tokens[i] : "\u2581";
      piece.className = (there ? (sample.remasked[i] ? "r" : sample.source[i]) : "masked") +
        (sample.step[i] === now && now < last ? " fresh" : "");
    });
    says.textContent = `round ${now} of ${last}: ${revealed} of ${pieces.length} tokens, ${fresh} new`;
  }
  slider.addEventListener("input", show);
  const move = by => () => { slider.value = Number(slider.value) + by; show(); };
  const used = new Set([...sample.source].map((s, i) => sample.remasked[i] ? "r" : s));
  show();
  return [
    element("div", { className: "stepper" },
      element("button", { type: "button", ariaLabel: "one round back", onclick: move(-1) }, "\u2039"),
      slider,
      element("button", { type: "button", ariaLabel: "one round on", onclick: move(1) }, "\u203a"),
      says),
    element("div", { className: "trace" }, ...pieces),
    element("p", { className: "legend" }, "revealed by",
      ...Object.keys(SOURCES).filter(s => used.has(s)).map(s => element("span", { className: s }, SOURCES[s]))),
  ];
}

function inside(sample) {
  const rows = [["problem", sample.prompt], ["right answer", sample.target]];
  if (sample.static_text !== null && sample.static_text !== sample.text) {
    rows.push(["answer", sample.text], ["static's", sample.static_text]);
  }
  const list = element("dl", {});
  for (const [name, value] of rows) list.append(element("dt", {}, name), element("dd", {}, value));
  return element("div", { className: "inside" }, list, ...trace(sample));
}

function card(sample) {
  const verdict = element("span", {
    className: `verdict small ${sample.correct ? "holds" : "fails"}`,
  }, sample.correct ? "right" : "wrong");
  const marks = ["won", "lost"].includes(sample.static)
    ? [element("span", { className: "verdict small mixed" }, `${sample.static} against static`)] : [];
  const made = element("details", { className: "sample" },
    element("summary", {}, element("span", {}, `#${sample.id}`), verdict, ...marks,
      element("code", {}, sample.prompt.trim().slice(0, 200))));
  made.addEventListener("toggle", () => {
    if (made.open && made.childElementCount === 1) made.append(inside(sample));
  });
  return made;
}

const FILTERS = {
  all: () => true, right: s => s.correct, wrong: s => !s.correct,
  won: s => s.static === "won", lost: s => s.static === "lost",
  differs: s => ["won", "lost", "differs"].includes(s.static),
};

for (const section of document.querySelectorAll("section.task")) {
  const samples = JSON.parse(section.querySelector("script").textContent);
  const place = section.querySelector(".samples");
  const tally = section.querySelector(".tally");
  const buttons = [...section.querySelectorAll("[data-filter]")];
  function fill(filter) {
    const found = samples.filter(FILTERS[filter]);
    place.replaceChildren(...found.map(card));
    tally.textContent = `${found.length} of ${samples.length} samples`;
    buttons.forEach(b => b.setAttribute("aria-pressed", String(b.dataset.filter === filter)));
  }
  for (const button of buttons) {
    button.hidden = !samples.some(FILTERS[button.dataset.filter]) && button.dataset.filter !== "all";
    button.addEventListener("click", () => fill(button.dataset.filter));
  }
  fill("all");
  const wanted = location.hash.match(/^#(.+)\/(\d+)$/);
  if (wanted && wanted[1] === section.id) {
    const at = samples.findIndex(s => String(s.id) === wanted[2]);
    if (at >= 0) { place.children[at].open = true; place.children[at].scrollIntoView(); }
  }
}
