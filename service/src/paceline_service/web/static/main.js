// Starts the page: theme, routes, the one connection state in the corner.

import { Api } from "./api.js";
import { fill, h, setText } from "./dom.js";
import { clock } from "./format.js";
import { openIncident } from "./incident.js";
import { openIncidents } from "./incidents.js";
import { openJob } from "./job.js";
import { openJobs } from "./jobs.js";
import { openOffenders } from "./offenders.js";
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
const NOTHING = { leave: () => {}, moved: () => false };
let current = NOTHING;
let turn = 0;

function onLink(state, running = true) {
  setText(link, state === "live" && !running ? "connected" : LINKS[state] ?? "");
  link.className = `link-state ${state ?? ""}`;
  link.title = state ? `Connection to the collector, ${clock(Date.now() * 1e6)}` : "";
}

const VIEWS = {
  jobs: { open: openJobs, tab: "#/" },
  job: { open: openJob, tab: "#/" },
  incidents: { open: openIncidents, tab: "#/incidents" },
  incident: { open: openIncident, tab: "#/incidents" },
  offenders: { open: openOffenders, tab: "#/offenders" },
};

async function show() {
  const mine = (turn += 1);
  current.leave();
  current = NOTHING;
  hideTooltip();
  onLink("");
  fill(slot);
  const route = parseRoute(location.hash);
  const { open, tab } = VIEWS[route.view];
  for (const link of document.querySelectorAll("#views a")) {
    if (link.getAttribute("href") === tab) link.setAttribute("aria-current", route.job || route.incident ? "true" : "page");
    else link.removeAttribute("aria-current");
  }
  fill(document.getElementById("crumbs"), route.job ?? (route.incident && `incident ${route.incident}`));
  if (mine === 1) fill(main, h("p", { class: "waiting" }, "Loading …"));
  try {
    const view = await open({ api, route, onLink: (...args) => mine === turn && onLink(...args), reload: show });
    if (mine !== turn) return view.leave();
    fill(main, view.element);
    fill(slot, view.head);
    current = { moved: () => false, ...view };
    view.start();
  } catch (error) {
    if (mine === turn) showError(error, route);
  }
  return undefined;
}

/** A click inside the page changes the address; what the page wrote there itself does not. */
async function navigate({ oldURL }) {
  if (current.moved(parseRoute(location.hash), parseRoute(new URL(oldURL).hash))) return;
  await show();
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
}

function showError(error, route) {
  const missing = error.status === 404;
  onLink(missing ? "" : "reconnecting");
  const what = route.incident ? `incident ${route.incident}` : `job “${route.job}”`;
  fill(main, h("section", { class: "empty" },
    h("h1", {}, missing ? `No such ${route.incident ? "incident" : "job"}` : error.status ? "The collector cannot answer" : "The collector cannot be reached"),
    h("p", {}, missing ? `There is no ${what} here, or your token may not read it.` : error.status ? error.message : "The page tries again by itself."),
    h("p", {}, h("a", { href: "#/" }, "All jobs"))));
  if (missing) return;
  const mine = turn;
  setTimeout(() => { if (mine === turn) show(); }, RETRY_MS);
}

window.addEventListener("hashchange", navigate);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment is the route
  main.focus();
});
initAccount(document.getElementById("account"));
initTheme(document.getElementById("theme"));
show();
