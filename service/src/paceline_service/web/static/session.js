// People who sign in with OpenID Connect: whether that is to be had here, and who is.

import { TOKEN_KEY } from "./api.js";
import { fill, h } from "./dom.js";

/** Return `{sign_in, name, scopes}`; null where the collector does not say. */
export async function session() {
  try {
    const response = await fetch("auth/session", { cache: "no-store" });
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}

/** Return a link that leads to the provider and back to this place of the page. */
export function signInLink() {
  return h("a", {
    class: "primary sign-in",
    href: `auth/login?to=${encodeURIComponent(location.hash)}`,
    // A token that was refused would go before the session otherwise.
    on: { click: () => { try { sessionStorage.removeItem(TOKEN_KEY); } catch { /* none is kept */ } } },
  }, "Sign in");
}

/** Show who is signed in, with a way out. */
export async function initAccount(node) {
  const known = await session();
  if (!known?.name) return;
  const out = h("button", { class: "quiet", type: "button", title: known.name, on: { click: signOut } }, "Sign out");
  fill(node, out);
}

async function signOut() {
  const response = await fetch("auth/logout", { method: "POST" });
  const told = response.ok ? await response.json() : {};
  location.assign(told.end_session ?? "./");
}
