// A part of the page with a heading that can be linked to, and how to go there.

import { h } from "./dom.js";
import { sectionLink } from "./router.js";

/** Return a card named `id`; `beside` stands right of its heading, `tools` at the end of that row. */
export function card({ id, title, beside = null, tools = null }, ...children) {
  return h("section", { class: `card ${id}-card`, id, "aria-labelledby": `${id}-title` },
    h("div", { class: "card-head" }, h("h2", { id: `${id}-title` }, title), beside,
      tools ? h("div", { class: "tools" }, tools) : null),
    children);
}

/** Links to the sections of a job's page; `parts` are [id, name, element] of those there are. */
export class SectionNav {
  #notes = new Map();

  constructor(job, parts) {
    this.parts = parts.filter(([, , element]) => element);
    this.links = this.parts.map(([id, name]) => {
      const note = h("span", { class: "count", hidden: true });
      this.#notes.set(id, note);
      const link = h("a", {}, name, note);
      link.addEventListener("focus", () => { link.href = sectionLink(job, id); });
      link.addEventListener("pointerenter", () => { link.href = sectionLink(job, id); });
      link.href = sectionLink(job, id);
      return link;
    });
    this.element = h("nav", { class: "sections", "aria-label": "Sections" },
      h("ul", {}, this.links.map((link) => h("li", {}, link))));
  }

  /** Put a few words, such as "1 open", behind the name of a section. */
  note(id, text) {
    const note = this.#notes.get(id);
    if (!note || note.textContent === text) return;
    note.textContent = text;
    note.hidden = !text;
  }

  /** Bring a section into view and into focus; an unknown name is left alone. */
  go(id) {
    const element = this.parts.find(([name]) => name === id)?.[2];
    if (!element?.isConnected) return;
    element.scrollIntoView({ block: "start" });
    element.tabIndex = -1;
    element.focus({ preventScroll: true });
  }
}
