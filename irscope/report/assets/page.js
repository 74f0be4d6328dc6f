"use strict";
// Makes the page answer: charts that are read by value, trees that fold, tables that sort and filter. Texts are set as text, never as markup.

const FEW = 15; // rows of a table that are shown at first
const MORE = 200;

function make(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function dataOf(box) {
  const element = box.querySelector(":scope > script");
  return element ? JSON.parse(element.textContent) : null;
}

/** A row from data: each cell is its text, or its text, raw value, title, and the length of its bar. */
function makeRow(cells, heads) {
  const row = document.createElement("tr");
  cells.forEach((given, place) => {
    const [shown, raw, title, bar] = Array.isArray(given) ? given : [given, given, "", 0];
    const cell = row.appendChild(make("td", shown));
    if (heads[place].classList.contains("number")) cell.classList.add("number");
    if (raw === null) cell.classList.add("unknown");
    else if (raw !== shown) cell.dataset.value = raw;
    if (title) cell.title = title;
    if (bar) {
      cell.classList.add("bar");
      cell.style.setProperty("--w", bar + "%");
    }
  });
  return row;
}

/** A table whose rows can be sorted, filtered and, where they are a tree, folded. */
class Rows {
  constructor(box) {
    this.box = box;
    this.heads = [...box.querySelectorAll("thead th")];
    this.body = box.querySelector("tbody");
    this.rows = [...this.body.rows].map((element) => ({ element, depth: Number(element.dataset.depth || 0), inner: [], open: true }));
    for (const cells of dataOf(box) || []) this.rows.push({ element: null, cells, depth: 0, inner: [], open: true });
    this.isTree = box.classList.contains("tree");
    this.roots = this.isTree ? this.nest() : this.rows;
    this.limit = FEW;
    this.word = "";
    this.sorted = null;
    this.addTools();
    if (this.isTree) this.foldTo(2 * FEW);
    this.show();
  }

  element(row) {
    if (!row.element) row.element = makeRow(row.cells, this.heads);
    return row.element;
  }

  nest() {
    const roots = [];
    const path = [];
    for (const row of this.rows) {
      path.length = Math.min(path.length, row.depth);
      row.outer = path[path.length - 1] || null;
      (row.outer ? row.outer.inner : roots).push(row);
      path.push(row);
    }
    for (const row of this.rows) this.addFold(row);
    return roots;
  }

  addFold(row) {
    const cell = this.element(row).cells[0];
    cell.title = cell.textContent.trim();
    const name = cell.textContent.trim();
    cell.textContent = "";
    cell.style.paddingLeft = row.depth + 0.4 + "rem";
    if (row.inner.length) {
      row.button = cell.appendChild(make("button", "", { type: "button", "aria-label": name + ": what is inside" }));
      row.button.addEventListener("click", () => {
        row.open = !row.open;
        this.show();
      });
    } else cell.appendChild(make("span", "", { class: "leaf" }));
    cell.append(name);
  }

  /** Opens the root, and further levels as long as no more rows than this are seen. */
  foldTo(most) {
    let deepest = 1;
    while (this.rows.some((row) => row.depth > deepest) && this.rows.filter((row) => row.depth <= deepest + 1).length <= most) deepest++;
    for (const row of this.rows) row.open = row.depth < deepest;
  }

  addTools() {
    const tools = make("div", "", { class: "tools" });
    if (this.rows.length > 5) {
      const title = this.box.previousElementSibling?.textContent || "the table";
      const filter = tools.appendChild(make("input", "", { type: "search", placeholder: "filter", "aria-label": "filter " + title }));
      filter.addEventListener("input", () => {
        this.word = filter.value.toLowerCase();
        this.show();
      });
    }
    if (this.isTree && this.rows.some((row) => row.depth > 1)) {
      for (const [label, open] of [["open all", true], ["fold all", false]]) {
        tools.appendChild(make("button", label, { type: "button" })).addEventListener("click", () => {
          for (const row of this.rows) row.open = open;
          this.show();
        });
      }
    }
    this.count = tools.appendChild(make("span", "", { role: "status" }));
    this.box.prepend(tools);
    this.more = make("button", "", { type: "button" });
    this.more.addEventListener("click", () => {
      this.limit += MORE;
      this.show();
    });
    this.box.querySelector(".scroll").after(this.more);
    this.heads.forEach((head, place) => {
      const button = make("button", head.textContent, { type: "button" });
      head.replaceChildren(button);
      button.addEventListener("click", () => this.sortBy(place));
    });
  }

  sortBy(place) {
    const isNumber = this.heads[place].classList.contains("number");
    const before = this.heads[place].getAttribute("aria-sort");
    const falls = before ? before === "ascending" : isNumber;
    for (const head of this.heads) head.removeAttribute("aria-sort");
    this.heads[place].setAttribute("aria-sort", falls ? "descending" : "ascending");
    const key = (row) => {
      const cell = this.element(row).cells[place];
      const text = cell.dataset.value ?? cell.textContent;
      return isNumber ? Number(text || NaN) : text.trim().toLowerCase();
    };
    const order = (rows) => {
      const keyed = rows.map((row, at) => ({ row, at, key: key(row), isLast: row.element.classList.contains("rest") }));
      keyed.sort((a, b) => {
        if (a.isLast !== b.isLast) return a.isLast ? 1 : -1; // what stands for all other rows
        const lacks = Number(Number.isNaN(a.key)) - Number(Number.isNaN(b.key)); // unknown ones and formulas last
        if (lacks || Number.isNaN(a.key)) return lacks || a.at - b.at;
        if (a.key === b.key) return a.at - b.at;
        return a.key < b.key === falls ? 1 : -1;
      });
      for (const { row } of keyed) if (row.inner.length) row.inner = order(row.inner);
      return keyed.map((one) => one.row);
    };
    this.roots = order(this.roots);
    this.show();
  }

  /** The rows to be seen, in order: with a filter those that have the word, and what they are inside of. */
  seen() {
    const matches = (row) => this.element(row).textContent.toLowerCase().includes(this.word);
    if (!this.isTree) return this.word ? this.roots.filter(matches) : this.roots;
    const found = [];
    const walk = (rows) => {
      for (const row of rows) {
        const at = found.push(row);
        if (this.word || row.open) walk(row.inner);
        if (this.word && found.length === at && !matches(row)) found.pop();
      }
    };
    walk(this.roots);
    return found;
  }

  show() {
    const seen = this.seen();
    const shown = this.isTree && !this.word ? seen.slice(0, this.limit + 1000) : seen.slice(0, this.limit);
    for (const row of shown) {
      if (!row.button) continue;
      const open = Boolean(this.word) || row.open;
      row.button.textContent = open ? "\u25be" : "\u25b8";
      row.button.setAttribute("aria-expanded", open);
    }
    this.body.replaceChildren(...shown.map((row) => this.element(row)));
    const left = seen.length - shown.length;
    this.more.hidden = !left;
    this.more.textContent = left > MORE ? `show ${MORE} more of ${left.toLocaleString("en")}` : `show ${left} more`;
    this.count.textContent = this.word ? `${seen.length.toLocaleString("en")} of ${this.rows.length.toLocaleString("en")} rows` : "";
  }
}

/** A chart that says what is at the place that is pointed at, or that the arrow keys have moved to. */
class Chart {
  constructor(figure) {
    this.data = dataOf(figure);
    if (!this.data) return;
    this.plot = figure.querySelector(".plot");
    this.field = figure.querySelector(".field");
    this.cursor = figure.querySelector(".cursor");
    this.reading = figure.querySelector(".reading");
    this.outputs = [...figure.querySelectorAll(".legend output")];
    this.parts = figure.querySelector(".parts tbody");
    this.heads = [...figure.querySelectorAll(".parts thead th")];
    this.at = Number(this.plot.getAttribute("aria-valuenow"));
    for (const kind of ["pointermove", "pointerdown"]) this.field.addEventListener(kind, (event) => this.point(event));
    this.plot.addEventListener("keydown", (event) => this.key(event));
    this.plot.addEventListener("focus", () => this.move(this.at));
  }

  point(event) {
    const box = this.field.getBoundingClientRect();
    const x = (100 * (event.clientX - box.left)) / box.width;
    const { x: xs, holds } = this.data;
    let low = 0;
    let high = xs.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (xs[middle] <= x) low = middle;
      else high = middle - 1;
    }
    const isNearer = !holds && low + 1 < xs.length && xs[low + 1] - x < x - xs[low];
    this.move(isNearer ? low + 1 : low);
  }

  key(event) {
    const last = this.data.x.length - 1;
    const page = Math.max(1, Math.round(last / 10));
    const to = {
      ArrowLeft: this.at - 1,
      ArrowRight: this.at + 1,
      ArrowDown: this.at - 1,
      ArrowUp: this.at + 1,
      PageDown: this.at - page,
      PageUp: this.at + page,
      Home: 0,
      End: last,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.move(Math.max(0, Math.min(last, to)));
  }

  move(to) {
    const { x, at, texts, values, holds, rows, parts } = this.data;
    const next = x[to + 1] ?? 100;
    this.cursor.hidden = false;
    this.cursor.style.left = (holds ? (x[to] + next) / 2 : x[to]) + "%";
    this.reading.textContent = at[to];
    this.outputs.forEach((output, number) => (output.textContent = texts[values[to][number]]));
    if (parts && to !== this.at) this.parts.replaceChildren(...parts[to].map((row) => makeRow(rows[row], this.heads)));
    this.at = to;
    this.plot.setAttribute("aria-valuenow", to);
    this.plot.setAttribute("aria-valuetext", at[to]);
  }
}

const tables = [...document.querySelectorAll(".table")].filter((box) => box.querySelector("tbody")).map((box) => new Rows(box));
document.querySelectorAll(".chart").forEach((figure) => new Chart(figure));
if (matchMedia("(max-width: 69.99rem)").matches) document.querySelector("nav details").open = false;
addEventListener("beforeprint", () => {
  for (const table of tables) {
    if (!table.isTree) continue;
    for (const row of table.rows) row.open = true;
    table.show();
  }
});
