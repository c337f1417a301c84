// Charts of values over iterations, as SVG: lines that follow the colours of the page, a cursor for pointer and keys, and a summary in
// words for who does not see them.

import {element, setText} from "./dom.js";
import {compact, round, withCommas} from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 130, LEFT = 52, RIGHT = 8, TOP = 8, BOTTOM = 18;

function shape(tag, attributes, text = "") {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.textContent = text;
  return node;
}

// At most four steps of 1, 2 or 5 times a power of ten that hold all values: {from, to, step}.
function scaleOf(values, fromZero) {
  const finite = values.filter(Number.isFinite);
  if (finite.length === 0) return {from: 0, to: 1, step: 1};
  const least = fromZero ? Math.min(0, ...finite) : Math.min(...finite), most = Math.max(...finite);
  const span = most - least || Math.abs(most) || 1;
  const power = 10 ** Math.floor(Math.log10(span / 3));
  const step = power * [1, 2, 5, 10].find(factor => factor * power * 3 >= span * 0.999);
  const from = Math.floor(least / step) * step;
  return {from, to: Math.max(Math.ceil(most / step) * step, from + step), step};
}

// A chart in a container. `series`: [{key, name}], columns of the data; `format` writes one value, and `unit` stands behind it;
// `fromZero`: the axis begins at 0.
export class LineChart {
  constructor(container, {title, series, format = compact, unit = "", fromZero = true}) {
    Object.assign(this, {title, series, format, unit, fromZero, data: null, cursor: null});
    this.readout = element("output");
    this.svg = shape("svg", {role: "img", tabindex: 0});
    const names = series.map(({name}, i) => element("span", name, {class: i > 0 ? "series-name second" : "series-name"}));
    const caption = element("figcaption", [element("b", title), ...(series.length > 1 ? names : []), this.readout]);
    container.append(element("figure", [caption, this.svg]));
    this.svg.addEventListener("pointermove", event => this.moveTo(this.indexAt(event)));
    this.svg.addEventListener("pointerleave", () => this.moveTo(null));
    this.svg.addEventListener("blur", () => this.moveTo(null));
    this.svg.addEventListener("keydown", event => this.onKey(event));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  // `data`: columns of numbers, and "iteration".
  update(data) {
    this.data = data;
    this.draw();
  }

  count() {
    return this.data?.iteration.length ?? 0;
  }

  indexAt(event) {
    const box = this.svg.getBoundingClientRect();
    const along = (event.clientX - box.left - LEFT) / Math.max(box.width - LEFT - RIGHT, 1);
    return this.count() === 0 ? null : Math.min(Math.max(Math.round(along * (this.count() - 1)), 0), this.count() - 1);
  }

  moveTo(index) {
    if (index === this.cursor) return;
    this.cursor = index;
    this.draw();
  }

  onKey(event) {
    const last = this.count() - 1, at = this.cursor ?? last + 1;
    const to = {ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last}[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.moveTo(Math.min(Math.max(to, 0), last));
    // What the cursor stands at is what is read aloud.
    this.svg.setAttribute("aria-label", `${this.title}: ${this.textAt(this.cursor)}`);
  }

  textAt(index) {
    const values = this.series.map(({key, name}) => {
      const value = this.data[key][index];
      return (this.series.length > 1 ? name + " " : "") + (value === null ? "not a number" : this.format(value) + this.unit);
    });
    return `iteration ${withCommas(this.data.iteration[index])}: ${values.join(", ")}`;
  }

  summary() {
    if (this.count() === 0) return `${this.title}: nothing yet`;
    const parts = this.series.map(({key, name}) => {
      const values = this.data[key].filter(Number.isFinite);
      if (values.length === 0) return `${name} unknown`;
      return [`${name} from ${this.format(values[0])}`, `to ${this.format(values.at(-1))}`, `at least ${this.format(Math.min(...values))}`,
              `at most ${this.format(Math.max(...values))}${this.unit}`].join(", ");
    });
    return `${this.title} over ${this.count()} points: ${parts.join("; ")}`;
  }

  draw() {
    const width = this.svg.clientWidth;
    if (width === 0) return;
    const shown = this.cursor !== null && this.cursor < this.count() ? this.cursor : this.count() - 1;
    setText(this.readout, shown < 0 ? "nothing yet" : this.textAt(shown));
    if (this.cursor === null) this.svg.setAttribute("aria-label", this.summary());
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren(...(this.count() === 0 ? [] : this.shapes(width, shown)));
  }

  shapes(width, shown) {
    const {from, to, step} = scaleOf(this.series.flatMap(({key}) => this.data[key]), this.fromZero);
    const last = Math.max(this.count() - 1, 1);
    const x = index => LEFT + index / last * (width - LEFT - RIGHT);
    const y = value => TOP + (to - value) / (to - from) * (HEIGHT - TOP - BOTTOM);
    const shapes = [];
    for (let value = from; value <= to + step / 2; value += step) {
      shapes.push(shape("line", {class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value)}),
                  shape("text", {class: "axis", x: LEFT - 5, y: y(value) + 4, "text-anchor": "end"}, round(Math.abs(value) < step / 1e6 ? 0 : value) + this.unit));
    }
    const iterations = this.data.iteration;
    shapes.push(shape("text", {class: "axis", x: LEFT, y: HEIGHT - 4}, withCommas(iterations[0])));
    if (iterations.length > 1) shapes.push(shape("text", {class: "axis", x: width - RIGHT, y: HEIGHT - 4, "text-anchor": "end"}, withCommas(iterations.at(-1))));
    this.series.forEach(({key}, i) => shapes.push(shape("path", {class: i > 0 ? "series second" : "series", d: this.path(key, x, y)})));
    if (this.cursor !== null) shapes.push(shape("line", {class: "cursor", x1: x(shown), x2: x(shown), y1: TOP, y2: HEIGHT - BOTTOM}));
    return shapes;
  }

  // One point is a short line, so that it is seen; what is not finite is a gap.
  path(key, x, y) {
    const values = this.data[key];
    if (values.length === 1 && Number.isFinite(values[0])) return `M${x(0)},${y(values[0])}h6`;
    let pen = "M";
    return values.map((value, index) => {
      if (!Number.isFinite(value)) {
        pen = "M";
        return "";
      }
      const step = `${pen}${x(index).toFixed(1)},${y(value).toFixed(1)}`;
      pen = "L";
      return step;
    }).join("");
  }
}
