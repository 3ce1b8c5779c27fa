// Lists and table rows that are updated in place: focus, selection and what is typed in stay.

/** Make `elements` the children of `parent`; what is in its place already is not touched. */
export function place(parent, elements) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  elements.forEach((element, i) => {
    if (parent.children[i] !== element) parent.insertBefore(element, parent.children[i] ?? null);
  });
  while (parent.children.length > elements.length) parent.lastElementChild.remove();
  if (focused && focused.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
}

export class Keyed {
  #views = new Map();

  /** `make(item)` returns a view: {element, update(item)}; `keyOf(item)` tells which one it is. */
  constructor(parent, keyOf, make) {
    Object.assign(this, { parent, keyOf, make });
  }

  /** Show `items` in their order, between the elements `before` and `after`. */
  update(items, { before = [], after = [] } = {}) {
    const old = this.#views;
    this.#views = new Map();
    for (const item of items) {
      const key = this.keyOf(item);
      const view = old.get(key) ?? this.make(item);
      view.update(item);
      this.#views.set(key, view);
    }
    place(this.parent, [...before, ...[...this.#views.values()].map((view) => view.element), ...after]);
  }

  get(key) {
    return this.#views.get(key);
  }
}
