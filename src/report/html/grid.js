"use strict";
// A list with columns, which may be long: only the rows that can be seen are in the page.

const ROW = 28;         // height of a row, in pixels; page.css has the same
const MOST_ROWS = 6e5;  // browsers draw nothing that is higher

class Grid {
  // columns: {title, width, cell(row), sort(row)}, falsy ones are left out; open(row): shows a row's details; mark(row):
  // its class.
  constructor(container, {label, columns, rows, open, mark}) {
    this.columns = columns.filter(column => column);
    this.rows = this.sorted = rows;
    this.drawn = Math.min(rows.length, MOST_ROWS);
    this.open = open;
    this.mark = mark;
    this.current = 0;
    this.sortedBy = {column: null, down: false};
    this.headings = this.columns.map(
        column => make(
            "div", {role: "columnheader"},
            make("button", {type: "button", class: "sort", on: {click: () => this.sortBy(column)}}, column.title)));
    this.space = make("div", {class: "rows", role: "rowgroup"});
    this.space.style.height = `${this.drawn * ROW}px`;
    this.element = make(
        "div", {
          class: "grid",
          role: "grid",
          tabindex: "0",
          "aria-label": `${label}: ${rows.length}${
              this.drawn < rows.length ? `, the first ${this.drawn} in the order of the list` : ""}`,
          "aria-rowcount": String(rows.length + 1),
          on: {scroll: () => this.draw(), click: event => this.click(event), keydown: event => this.key(event)}
        },
        make("div", {role: "rowgroup", class: "headings"}, this.line({class: "row"}, this.headings)), this.space);
    replace(
        container,
        rows.length ? this.element : make("p", {class: "muted"}, "Nothing passes the filters and the search."));
    this.draw();
  }

  line(properties, cells) {
    const element = make("div", {role: "row", ...properties}, cells);
    element.style.gridTemplateColumns = this.columns.map(column => column.width).join(" ");
    return element;
  }

  draw() {
    const margin = 5;  // rows above and below, for a quick scroll
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - margin);
    const count = Math.ceil((this.element.clientHeight || 600) / ROW) + 2 * margin;
    replace(
        this.space,
        this.sorted.slice(first, Math.min(first + count, this.drawn)).map((row, i) => this.rowElement(row, first + i)));
    this.element.setAttribute("aria-activedescendant", `row-${this.current}`);
  }

  rowElement(row, number) {
    const element = this.line(
        {
          id: `row-${number}`,
          class: `row ${this.mark(row)}`,
          "aria-rowindex": String(number + 2),
          "aria-selected": String(number === this.current)
        },
        this.columns.map(column => make("div", {role: "gridcell"}, column.cell(row))));
    element.style.top = `${number * ROW}px`;
    element.number = number;
    return element;
  }

  sortBy(column) {
    const down = this.sortedBy.column === column && !this.sortedBy.down, sign = down ? -1 : 1;
    this.sortedBy = {column, down};
    const compare = (a, b) => a < b ? -sign : a > b ? sign : 0;
    this.sorted = this.rows.map(row => [column.sort(row), row]).sort(([a], [b]) => compare(a, b)).map(([, row]) => row);
    this.headings.forEach((heading, i) => {
      const order = down ? "descending" : "ascending";
      heading.setAttribute("aria-sort", this.columns[i] === column ? order : "none");
    });
    this.element.scrollTop = 0;
    this.current = 0;
    this.draw();
  }

  go(number) {
    this.current = Math.max(0, Math.min(this.drawn - 1, number));
    const top = this.current * ROW, seen = this.element.clientHeight - 2 * ROW;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top > this.element.scrollTop + seen) this.element.scrollTop = top - seen;
    this.draw();
  }

  click(event) {
    const element = event.target.closest(".rows > .row");
    if (!element) return;
    this.go(element.number);
    this.open(this.sorted[this.current]);
  }

  key(event) {
    if (event.target !== this.element || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.floor(this.element.clientHeight / ROW) - 2, at = this.current;
    const to = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: this.drawn - 1
    }[event.key];
    if (to !== undefined) this.go(to);
    else if (event.key === "Enter") this.open(this.sorted[at]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
