"use strict";
// Sorting, filtering and copying of the tables. Without scripts the page shows all rows as built.
const JOBS = JSON.parse(document.getElementById("jobs").textContent);
const SPECIAL = JSON.parse(document.getElementById("special").textContent); // what TeX wants escaped
const FACETS = ["backbone", "task", "mode", "head", "K", "\u03c4"];
const chosen = Object.fromEntries(FACETS.map(name => [name, ""]));
let sought = []; // words that a shown row has in its labels, its group's title or its runs' facets
const tables = [...document.querySelectorAll("main section table")];

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in made) made[key] = value; else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const bodies = table => [...table.tBodies].filter(body => body.dataset.title);
const rowsOf = body => [...body.rows].filter(row => !row.classList.contains("group"));
const jobsOf = row => [...new Set([row.dataset.jobs ?? "", ...[...row.querySelectorAll("[data-job]")]
  .map(cell => cell.dataset.job)].flatMap(jobs => jobs.split(" ")))];

// ---- filter: a row stays if one of its jobs has every chosen value, and all words that are sought
// stand in its labels or are one of its jobs' mode and head; the baseline always stays. Means over
// tasks stay whatever the task, and do not count. A table without any row goes, heading and all -----

function matches(job) {
  return FACETS.slice(2).every(name => !chosen[name] || JOBS[job]?.[name] === chosen[name]);
}

function labelled(row, title) {
  const cells = [...row.querySelectorAll("th, td.label")].map(cell => cell.textContent);
  const runs = jobsOf(row).flatMap(job => [JOBS[job]?.mode, JOBS[job]?.head]).filter(Boolean);
  const names = [...new Set(runs)].flatMap(name => [name, name.replaceAll("_", "-")]);
  const text = [title, ...cells, ...names].join(" ").toLowerCase();
  return sought.every(word => text.includes(word));
}

function emptied(table) { // hide its section, and what leads there
  const section = table.closest("section");
  section.hidden = bodies(table).every(body => body.hidden);
  const links = [...document.querySelectorAll("nav a")];
  links.find(link => link.hash === `#${section.id}`).hidden = section.hidden;
  return section.hidden;
}

function filter() {
  const narrowed = FACETS.slice(2).some(name => chosen[name]);
  let shown = 0, all = 0;
  for (const table of tables) {
    for (const body of bodies(table)) {
      const [backbone, task] = body.dataset.title.split(" \u00b7 ");
      const pooled = task === undefined;
      const here = (!chosen.backbone || chosen.backbone === backbone) &&
        (pooled || !chosen.task || chosen.task === task);
      let any = false;
      for (const row of rowsOf(body)) {
        const reference = row.classList.contains("reference");
        const fits = here && (reference || !narrowed || jobsOf(row).some(matches)) &&
          (reference || labelled(row, body.dataset.title));
        row.hidden = !fits;
        if (!reference) any ||= fits;
        if (!reference && !pooled) { all += 1; shown += fits; }
      }
      body.hidden = !any;
    }
  }
  document.getElementById("shown").textContent = `${shown} of ${all} rows`;
  const gone = tables.filter(emptied).length;
  document.getElementById("emptied").textContent = gone === 0 ? "" : gone === tables.length ?
    "No table has such a row." : `${gone} table${gone === 1 ? "" : "s"} without such a row ${gone === 1 ? "is" : "are"} hidden.`;
}

function filters() {
  const bar = document.getElementById("filters");
  const titles = tables.flatMap(bodies).map(body => body.dataset.title.split(" \u00b7 "));
  const values = {
    backbone: titles.map(t => t[0]), task: titles.map(t => t[1] ?? ""),
    ...Object.fromEntries(FACETS.slice(2).map(n => [n, Object.values(JOBS).map(j => j[n] ?? "")])),
  };
  for (const name of FACETS) {
    const found = [...new Set(values[name])].filter(value => value !== "");
    if (found.length < 2) continue;
    if (name === "K" || name === "\u03c4") found.sort((a, b) => a - b);
    const select = element("select", { onchange: e => { chosen[name] = e.target.value; filter(); } },
      element("option", { value: "" }, "all"), ...found.map(v => element("option", { value: v }, v)));
    bar.append(element("label", {}, `${name} `, select));
  }
  const search = element("input", {
    type: "search", placeholder: "wino 0.7", size: 12,
    oninput: event => {
      sought = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      filter();
    },
  });
  bar.append(element("label", {}, "words ", search));
  bar.append(element("button", {
    type: "button",
    onclick: () => {
      FACETS.forEach(name => { chosen[name] = ""; });
      sought = [];
      search.value = "";
      bar.querySelectorAll("select").forEach(select => { select.value = ""; });
      filter();
    },
  }, "show all"), element("output", { id: "shown" }), element("output", { id: "emptied" }));
  bar.hidden = false;
}

// ---- sort: inside each group, by the number behind a cell, or its text ----------------------------

function key(row, column) {
  const cell = row.cells[column];
  if (!cell || cell.colSpan > 1) return null;
  if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
  const text = cell.querySelector(".main")?.textContent.trim() ?? "";
  return text === "" || text === "\u2013" ? null : (isNaN(Number(text)) ? text : Number(text));
}

function sort(table, column, direction) {
  for (const body of bodies(table)) {
    const rows = rowsOf(body);
    rows.forEach((row, place) => { row.dataset.place ??= place; });
    rows.sort((a, b) => {
      const back = a.dataset.place - b.dataset.place;
      if (!direction) return back;
      const [x, y] = [key(a, column), key(b, column)];
      if (x === null || y === null) return (x === null) - (y === null) || back;
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
      return direction * order || back;
    });
    body.append(...rows);
  }
  [...table.tHead.rows[0].cells].forEach((heading, at) => {
    if (at === column && direction) heading.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    else heading.removeAttribute("aria-sort");
  });
}

function sortable(table) {
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = element("button", { type: "button", className: "sort" });
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const now = heading.getAttribute("aria-sort");
      sort(table, column, now === null ? -1 : now === "descending" ? 1 : 0);
    });
  });
}

// ---- copy: the rows that are shown, in the order shown --------------------------------------------

const ALL = "all tasks"; // in place of the task, where a row is a mean over a backbone's tasks

function number(cell, main) { // in the unit of the heading, unrounded; or the text, if it is none
  const plain = main.replaceAll("\u2212", "-");
  if (cell.dataset.value === undefined || isNaN(Number(plain.replace("\u00d7", "")))) return plain;
  return String(Number((cell.dataset.value * (cell.dataset.scale ?? 1)).toPrecision(6)));
}

function words(cell) {
  const text = name => cell.querySelector(name)?.textContent.trim() ?? "";
  const [main, details] = [text(".main, .stay"), text(".detail").split("\n")];
  if (!cell.matches("th, .label")) return { main, detail: details[0], value: number(cell, main) };
  const chips = [...cell.querySelectorAll(".chip")].map(chip => chip.textContent.trim());
  const label = [main, ...details, ...chips].filter(Boolean).join(", ");
  return { main: label, detail: "", value: label };
}

function shownRows(table) {
  const found = [];
  for (const body of bodies(table)) {
    if (body.hidden) continue;
    const [backbone, task = ALL] = body.dataset.title.split(" \u00b7 ");
    for (const row of rowsOf(body)) {
      const cells = [...row.cells].flatMap(cell =>
        [words(cell), ...Array(cell.colSpan - 1).fill({ main: "", detail: "", value: "" })]);
      if (!row.hidden) found.push([[backbone, task], cells]);
    }
  }
  return found;
}

function headings(table) {
  return [...table.tHead.rows[0].cells].map(cell => {
    const unit = cell.querySelector(".detail")?.textContent ?? "";
    return { name: cell.textContent.slice(0, cell.textContent.length - unit.length).trim(), unit };
  });
}

const tex = text => [...text].map(c => SPECIAL[c] ?? (c <= "\x7f" ? c : "?")).join("");
const quote = text => /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;

const FORMATS = {
  Markdown(table) {
    const names = ["backbone", "task", ...headings(table).map(h => h.unit ? `${h.name} (${h.unit})` : h.name)];
    const line = cells => `| ${cells.map(c => c.replaceAll("|", "\\|")).join(" | ")} |`;
    const rows = shownRows(table).map(([at, cells]) =>
      line([...at, ...cells.map(c => c.detail && c.main ? `${c.main} (${c.detail})` : c.main)]));
    return [line(names), line(names.map(() => "---")), ...rows].join("\n");
  },
  LaTeX(table) {
    const names = ["backbone", "task", ...headings(table).map(h => h.name)].map(tex);
    const rows = shownRows(table).map(([at, cells]) => [...at, ...cells.map(c => c.main)].map(tex).join(" & ") + " \\\\");
    return [`\\begin{tabular}{${"l".repeat(names.length)}}`, "\\toprule", names.join(" & ") + " \\\\", "\\midrule",
      ...rows, "\\bottomrule", "\\end{tabular}"].join("\n");
  },
  CSV(table) {
    const names = ["backbone", "task", ...headings(table).map(h => h.unit ? `${h.name} (${h.unit})` : h.name)];
    const rows = shownRows(table).map(([at, cells]) => [...at, ...cells.map(c => c.value)]);
    return [names, ...rows].map(row => row.map(quote).join(",")).join("\n");
  },
};

async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // a page from disk may not have the clipboard: the old way
    const area = element("textarea", { value: text, className: "copied" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

function copyable(table) {
  const says = element("output", {});
  const buttons = Object.entries(FORMATS).map(([name, write]) => element("button", {
    type: "button",
    onclick: async () => {
      const text = write(table);
      table.dataset.copied = text; // what was copied, where a browser does not let it be read back
      await toClipboard(text);
      says.textContent = `${text.split("\n").length} lines copied`;
    },
  }, name));
  table.closest(".scroll").after(element("p", { className: "copy" }, "Copy as ", ...buttons, says));
}

tables.forEach(sortable);
tables.forEach(copyable);
filters();
filter();
