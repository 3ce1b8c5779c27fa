// Starts the page: theme, routes, the one connection state in the corner.

import { Api } from "./api.js";
import { fill, h, setText } from "./dom.js";
import { clock } from "./format.js";
import { openJob } from "./job.js";
import { openJobs } from "./jobs.js";
import { parseRoute } from "./router.js";
import { initAccount } from "./session.js";
import { initTheme } from "./theme.js";
import { askToken } from "./token.js";
import { hideTooltip } from "./tooltip.js";

const LINKS = {
  live: "live", reconnecting: "reconnecting …", polling: "polling every 2 s", gone: "job is gone",
};
const RETRY_MS = 2_000;

const main = document.getElementById("main");
const link = document.getElementById("link-state");
const slot = document.getElementById("job-slot");
const api = new Api(askToken);
let leave = () => {};
let turn = 0;

function onLink(state, running = true) {
  setText(link, state === "live" && !running ? "connected" : LINKS[state] ?? "");
  link.className = `link-state ${state ?? ""}`;
  link.title = state ? `Connection to the collector, ${clock(Date.now() * 1e6)}` : "";
}

async function show() {
  const mine = (turn += 1);
  leave();
  leave = () => {};
  hideTooltip();
  onLink("");
  fill(slot);
  const route = parseRoute(location.hash);
  fill(document.getElementById("crumbs"), route.view === "job" ? [h("a", { href: "#/" }, "Jobs"), h("span", { "aria-hidden": "true" }, "/"), h("span", { "aria-current": "page" }, route.job)] : null);
  if (mine === 1) fill(main, h("p", { class: "waiting" }, "Loading …"));
  try {
    const open = route.view === "job" ? openJob : openJobs;
    const view = await open({ api, route, onLink: (...args) => mine === turn && onLink(...args), reload: show });
    if (mine !== turn) return view.leave();
    fill(main, view.element);
    fill(slot, view.head);
    view.start();
    leave = view.leave;
  } catch (error) {
    if (mine === turn) showError(error, route);
  }
  return undefined;
}

function showError(error, route) {
  const missing = error.status === 404;
  onLink(missing ? "" : "reconnecting");
  fill(main, h("section", { class: "empty" },
    h("h2", {}, missing ? "No such job" : error.status ? "The collector cannot answer" : "The collector cannot be reached"),
    h("p", {}, missing ? `There is no job “${route.job}” here, or your token may not read it.` : error.status ? error.message : "The page tries again by itself."),
    h("p", {}, h("a", { href: "#/" }, "All jobs"))));
  if (missing) return;
  const mine = turn;
  setTimeout(() => { if (mine === turn) show(); }, RETRY_MS);
}

/** A click inside the page changes the address; what the page wrote there itself does not. */
window.addEventListener("hashchange", show);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment is the route
  main.focus();
});
initAccount(document.getElementById("account"));
initTheme(document.getElementById("theme"));
show();
