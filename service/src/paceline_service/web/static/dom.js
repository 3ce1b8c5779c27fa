// Building DOM nodes. Text always becomes text nodes: what the API says is data, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** Return a new element. `on` holds listeners, `vars` CSS custom properties, the rest attributes. */
export function h(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [type, fn] of Object.entries(value)) node.addEventListener(type, fn);
    else if (key === "vars") for (const [name, v] of Object.entries(value)) node.style.setProperty(name, v);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replace everything in `node` by `children`. */
export function fill(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

/** Set the text only where it changed, so that screen readers and selections are left in peace. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const ICONS = {
  slow: "M12 3 22 20.500H2Z M12 9.500v5 M12 17.300v.4",
  ok: "M12 2.500a9.500 9.500 0 1 0 0 19a9.500 9.500 0 1 0 0-19Z M7.500 12.300l3 3 6-6.500",
  unsure: "M12 2.500a9.500 9.500 0 1 0 0 19a9.500 9.500 0 1 0 0-19Z M8 12h.2 M12 12h.2 M16 12h.2",
  stop: "M8 2.500h8l5.500 5.500v8L16 21.500H8L2.500 16V8Z M8.500 8.500l7 7 M15.500 8.500l-7 7",
  net: "M5 8.500a3 3 0 1 0 0-6a3 3 0 1 0 0 6Z M19 21.500a3 3 0 1 0 0-6a3 3 0 1 0 0 6Z M7.500 8l3 2.800 M13.500 14l3 2.500 M10 13.500l4-3",
  scale: "M12 3v18 M5 6.500h14 M5 6.500 2 14h6Z M19 6.500 16 11h6Z M8 21h8",
};

/** Return a decorative icon; the words beside it carry the meaning. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const path = document.createElementNS(SVG, "path");
  for (const [key, value] of Object.entries({ viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" })) {
    svg.setAttribute(key, value);
  }
  path.setAttribute("d", ICONS[name] ?? ICONS.unsure);
  svg.append(path);
  return svg;
}
