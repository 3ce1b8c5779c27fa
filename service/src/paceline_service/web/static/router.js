// Deep links live in the fragment: #/jobs/NAME?attempt=1&from=100&to=140&lanes=nodes&rank=5

/** Return {view, job, params} of a fragment. */
export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?", 2);
  const params = new URLSearchParams(query);
  const match = /^\/jobs\/([^/]+)\/?$/.exec(path);
  if (!match) return { view: "jobs", job: null, params };
  try {
    return { view: "job", job: decodeURIComponent(match[1]), params };
  } catch {
    return { view: "jobs", job: null, params };
  }
}

/** Return the fragment of a job's page. */
export function jobLink(job, params) {
  const query = params?.toString();
  return `#/jobs/${encodeURIComponent(job)}${query ? `?${query}` : ""}`;
}

/** Change parameters of the present address without a new history entry; null removes one. */
export function updateParams(changes) {
  const { view, job, params } = parseRoute(location.hash);
  if (view !== "job") return;
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) params.delete(key);
    else params.set(key, value);
  }
  const next = jobLink(job, params);
  if (next !== location.hash) history.replaceState(null, "", next);
}
