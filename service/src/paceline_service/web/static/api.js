// The collector's HTTP API: relative to the page, with a bearer token once one was asked for.

export const TOKEN_KEY = "paceline-token";

export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

function storedToken() {
  try { return sessionStorage.getItem(TOKEN_KEY) ?? ""; } catch { return ""; }
}

function storeToken(token) {
  try { sessionStorage.setItem(TOKEN_KEY, token); } catch { /* private mode: kept in memory only */ }
}

export class Api {
  #token = storedToken();
  #asking = null;
  #askToken;
  #changeToken = ""; // in memory only: who can change things should not find it in a tab left open

  /** `askToken({scope, refused})` returns a promise of what the reader types in; null: gave up. */
  constructor(askToken) {
    this.#askToken = askToken;
  }

  /** Return the response of a GET; asks for a token as long as the answer is 401. */
  async open(path, { headers = {}, signal } = {}) {
    for (;;) {
      const token = this.#token;
      const response = await fetch(path, { headers: bearing(token, headers), signal, cache: "no-store" });
      if (response.status === 401) {
        await response.body?.cancel();
        if (token === this.#token) await this.#renewToken(Boolean(token));
        continue;
      }
      if (!response.ok) throw new ApiError(response.status, await problemOf(response));
      return response;
    }
  }

  /** Return the JSON of a GET. */
  async json(path, options) {
    return (await this.open(path, options)).json();
  }

  /** Return the JSON of a request that changes something; null where the reader gives no token. */
  async change(method, path, body) {
    for (let token = this.#changeToken || this.#token; ;) {
      const headers = bearing(token, body === undefined ? {} : { "Content-Type": "application/json" });
      const response = await fetch(path, { method, headers, body: JSON.stringify(body), cache: "no-store" });
      if (response.status === 401 || response.status === 403) {
        const refused = token || response.status === 403 ? await problemOf(response) : "";
        token = await this.#askToken({ scope: "admin", refused });
        if (token === null) return null;
        continue;
      }
      if (!response.ok) throw new ApiError(response.status, await problemOf(response));
      this.#changeToken = token;
      return response.json();
    }
  }

  async #renewToken(refused) {
    const asked = { scope: "read", refused: refused ? "That token was not accepted." : "" };
    this.#asking ??= this.#askToken(asked).finally(() => { this.#asking = null; });
    this.#token = await this.#asking;
    storeToken(this.#token);
  }
}

function bearing(token, headers) {
  return token ? { ...headers, Authorization: `Bearer ${token}` } : headers;
}

async function problemOf(response) {
  try {
    const problem = await response.json();
    const where = (problem.errors ?? []).map(({ where: at, message }) => `${at}: ${message}`).join("; ");
    return where || problem.detail || problem.title || `HTTP ${response.status}`;
  } catch {
    return `HTTP ${response.status}`;
  }
}

/** Path of a job's resource; `query` leaves out what is null. */
export function jobPath(job, resource = "", query = {}) {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") search.set(key, value);
  }
  const tail = search.size ? `?${search}` : "";
  return `v1/jobs/${encodeURIComponent(job)}${resource ? `/${resource}` : ""}${tail}`;
}
