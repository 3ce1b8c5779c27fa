// Asks for the token that the collector wants; it stays in this tab's session storage.

import { fill, h } from "./dom.js";
import { session, signInLink } from "./session.js";

/** Return a promise of what the reader types in; `refused` says that the last one was wrong. */
export function askToken(refused) {
  return new Promise((resolve) => {
    const input = h("input", { type: "password", name: "token", autocomplete: "off", required: true, "aria-label": "Token" });
    const people = h("p", { class: "people" });
    session().then((known) => { if (known?.sign_in) fill(people, signInLink()); });
    const dialog = h("dialog", { class: "token", "aria-labelledby": "token-title" },
      h("form", { method: "dialog" },
        h("h2", { id: "token-title" }, "This collector asks for a token"),
        h("p", {}, refused ? "That token was not accepted. It needs the scope “read”." : "Paste a token with the scope “read”. It is kept for this tab only."),
        people, input, h("button", { type: "submit", class: "primary" }, "Continue")));
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      const token = input.value.trim();
      if (!token) return;
      dialog.close();
      dialog.remove();
      resolve(token);
    });
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
}
