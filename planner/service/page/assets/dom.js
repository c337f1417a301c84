// Elements of the page. Every text goes through textContent, so that no name of a job or a host can become markup; what did not change
// is left alone, so that focus and selection stay.

export function byId(id) {
  return document.getElementById(id);
}

export function element(tag, content = [], attributes = {}) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  for (const child of Array.isArray(content) ? content : [content]) node.append(child);
  return node;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Shows the text, or hides the element where there is none.
export function showText(node, text) {
  setText(node, text);
  node.hidden = text === "";
}

function fillCell(cell, value) {
  const {text, className = "", bars = null} = typeof value === "object" ? value : {text: String(value)};
  if (cell.className !== className) cell.className = className;
  if (bars === null) return setText(cell, text);
  while (cell.children.length < bars.length) cell.append(element("span", [], {class: cell.children.length > 0 ? "bar second" : "bar"}));
  bars.forEach((ratio, i) => {
    cell.children[i].hidden = ratio === null;
    cell.children[i].style.width = `${100 * Math.min(Math.max(ratio ?? 0, 0), 1)}%`;
  });
}

// Rows of cells: texts, {text, className} or {bars: [shares of the width]}.
export function fillTable(body, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, i) => {
    const row = body.rows[i] ?? body.insertRow();
    cells.forEach((value, j) => fillCell(row.cells[j] ?? row.insertCell(), value));
  });
}

// Pairs of a name and a text.
export function fillFigures(list, pairs) {
  while (list.children.length > pairs.length) list.lastChild.remove();
  pairs.forEach(([name, text], i) => {
    if (list.children[i] === undefined) list.append(element("div", [element("dt"), element("dd")]));
    setText(list.children[i].children[0], name);
    setText(list.children[i].children[1], text);
  });
}
