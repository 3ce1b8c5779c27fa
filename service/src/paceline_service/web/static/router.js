// Deep links live in the fragment: #/jobs/NAME?attempt=1&at=incidents, #/incidents/17, #/offenders

const VIEWS = { "/": "jobs", "/incidents": "incidents", "/offenders": "offenders" };

/** Return {view, job, incident, params} of a fragment. */
export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?", 2);
  const route = { view: VIEWS[path] ?? "jobs", job: null, incident: null, params: new URLSearchParams(query) };
  const incident = /^\/incidents\/(\d{1,19})\/?$/.exec(path);
  if (incident) return { ...route, view: "incident", incident: incident[1] };
  const job = /^\/jobs\/([^/]+)\/?$/.exec(path);
  if (!job) return route;
  try {
    return { ...route, view: "job", job: decodeURIComponent(job[1]) };
  } catch {
    return route;
  }
}

/** Return the fragment of a job's page; `params` are URLSearchParams or an object. */
export function jobLink(job, params) {
  return withQuery(`#/jobs/${encodeURIComponent(job)}`, params);
}

/** Return the fragment of one incident. */
export function incidentLink(id) {
  return `#/incidents/${id}`;
}

/** Return the fragment of a section of a job's page, at the steps and lanes of the present address. */
export function sectionLink(job, section) {
  const present = parseRoute(location.hash);
  const params = new URLSearchParams(present.job === job ? present.params : "");
  params.set("at", section);
  return jobLink(job, params);
}

/** Return the values of a parameter that may be there several times; null where it is not there at all. */
export function valuesOf(params, key) {
  return params.has(key) ? params.getAll(key).filter(Boolean) : null;
}

/**
 * Change parameters of the present address without a new history entry; null removes one. Of a list every value is
 * written, and of an empty one that it is empty.
 */
export function updateParams(changes) {
  const [path] = location.hash.split("?", 1);
  const { params } = parseRoute(location.hash);
  for (const [key, value] of Object.entries(changes)) {
    if (Array.isArray(value)) {
      params.delete(key);
      for (const one of value.length ? value : [""]) params.append(key, one);
    } else if (value === null || value === "") params.delete(key);
    else params.set(key, value);
  }
  const next = withQuery(path || "#/", params);
  if (next !== location.hash) history.replaceState(null, "", next);
}

function withQuery(path, params) {
  const query = new URLSearchParams(params ?? "").toString();
  return query ? `${path}?${query}` : path;
}
