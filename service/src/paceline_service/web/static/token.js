// Asks for the token that the collector wants, in place. One that may read stays in this tab's session
// storage; one that may change things is asked for when something is to change, and can be declined.

import { fill, h } from "./dom.js";
import { session, signInLink } from "./session.js";

const WORDS = {
  read: {
    title: "This collector asks for a token",
    text: "Paste a token with the scope “read”. It is kept for this tab only.",
    again: "It needs the scope “read”.",
  },
  admin: {
    title: "This change needs a token",
    text: "Paste a token with the scope “admin” for this job. It is kept until the page is left or loaded again. “paceline tokens new admin” makes one.",
    again: "It needs the scope “admin” for this job.",
  },
};

/** Return a promise of what the reader types in; `refused` says why the last one was not enough. */
export function askToken({ scope, refused }) {
  const words = WORDS[scope];
  return new Promise((resolve) => {
    const input = h("input", { type: "password", name: "token", autocomplete: "off", required: true, "aria-label": "Token", "aria-describedby": "token-text" });
    const people = h("p", { class: "people" });
    session().then((known) => { if (known?.sign_in && !known.name) fill(people, signInLink()); });
    const end = (answer) => {
      dialog.close(); // gives the focus back to where it was
      dialog.remove();
      resolve(answer);
    };
    const decline = scope === "read" ? null
      : h("button", { type: "button", on: { click: () => end(null) } }, "Leave it as it is");
    const dialog = h("dialog", { class: "token", "aria-labelledby": "token-title" },
      h("form", { method: "dialog" },
        h("h2", { id: "token-title" }, words.title),
        h("p", { id: "token-text", role: refused ? "alert" : null }, refused ? `${refused} ${words.again}` : words.text),
        people, input, h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Continue"), decline)));
    dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      if (decline) end(null);
    });
    dialog.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      const token = input.value.trim();
      if (token) end(token);
    });
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
}
