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

  /** `askToken(refused)` returns a promise of the token that the reader types in. */
  constructor(askToken) {
    this.#askToken = askToken;
  }

  /** Return the response of a GET; asks for a token as long as the answer is 401. */
  async open(path, { headers = {}, signal } = {}) {
    for (;;) {
      const token = this.#token;
      const sent = token ? { ...headers, Authorization: `Bearer ${token}` } : headers;
      const response = await fetch(path, { headers: sent, signal, cache: "no-store" });
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

  async #renewToken(refused) {
    this.#asking ??= this.#askToken(refused).finally(() => { this.#asking = null; });
    this.#token = await this.#asking;
    storeToken(this.#token);
  }
}

async function problemOf(response) {
  try {
    const problem = await response.json();
    return problem.detail || problem.title || `HTTP ${response.status}`;
  } catch {
    return `HTTP ${response.status}`;
  }
}

/** Path of a job's resource; `query` leaves out what is null. */
export function jobPath(job, resource = "", query = {}) {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== null && value !== undefined) search.set(key, value);
  }
  const tail = search.size ? `?${search}` : "";
  return `v1/jobs/${encodeURIComponent(job)}${resource ? `/${resource}` : ""}${tail}`;
}
