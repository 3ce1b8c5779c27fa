"""SQL over the collector's tables (docs/tables.md), in PostgreSQL's words and Grafana's macros.

Tables grow to billions of rows: every statement finds its rows by the key (attempt, time) of
``lanes`` or (attempt, step) of ``step_summaries``, and takes a bounded number of them.
"""

from __future__ import annotations

STEPS = 12
"""Teeth of the sawtooth: few enough that each is seen."""
MAX_LANES = 20_000
"""Rows that a panel takes at most, the newest first."""
NAMED = " (named)"
"""What is behind the name of a rank that a finding names."""

# LIMIT within the sub-selects and single values instead of joins make the planner go by the key.
_ATTEMPT = """\
WITH attempt AS MATERIALIZED (
  SELECT a.id FROM job_attempts a JOIN jobs j ON j.id = a.job_id, LATERAL (
    SELECT l.rank FROM lanes l
    WHERE l.attempt_id = a.id AND $__unixEpochNanoFilter(l.start_wall_ns)
    ORDER BY l.start_wall_ns DESC LIMIT 1) one
  WHERE j.name = ${job:sqlstring} ORDER BY a.ordinal DESC LIMIT 1
)"""

_NEWEST = f"""\
{_ATTEMPT}, newest AS (
  SELECT l.step, l.rank, l.kind, l.start_wall_ns, l.end_wall_ns
  FROM lanes l
  WHERE l.attempt_id = (SELECT id FROM attempt) AND $__unixEpochNanoFilter(l.start_wall_ns)
  ORDER BY l.start_wall_ns DESC LIMIT {MAX_LANES}
)"""

# Of each rank only durations are used, from its own start of the step: clocks of nodes differ.
# The first step of those found may be cut, the last one may not be over.
SAWTOOTH = f"""\
{_NEWEST}, shown AS (
  SELECT step FROM newest GROUP BY step
  HAVING MAX(end_wall_ns) <= $__unixEpochNanoTo() AND step > (SELECT MIN(step) FROM newest)
  ORDER BY step DESC LIMIT {STEPS}
), laid AS (
  SELECT step, rank, kind,
    start_wall_ns - MIN(start_wall_ns) OVER (PARTITION BY step, rank) AS from_ns,
    end_wall_ns - MIN(start_wall_ns) OVER (PARTITION BY step, rank) AS to_ns
  FROM newest JOIN shown USING (step)
), places AS (
  SELECT step, SUM(MAX(to_ns)) OVER (ORDER BY step) - MAX(to_ns) AS at_ns FROM laid GROUP BY step
), points AS (
  SELECT step, rank, to_ns AS x_ns,
    SUM(CASE kind WHEN 'compute' THEN to_ns - from_ns ELSE 0 END)
      OVER (PARTITION BY step, rank ORDER BY from_ns) AS own_ns
  FROM laid
  UNION ALL SELECT DISTINCT step, rank, 1000, 0 FROM laid
  UNION ALL SELECT step, rank, MAX(to_ns) + 500, 0 FROM laid GROUP BY step, rank
), named AS (
  SELECT DISTINCT p.rank FROM (SELECT DISTINCT rank FROM points) p, attempt, incidents i,
    regexp_split_to_table(i.ranks, ',') AS part,
    LATERAL (SELECT regexp_match(part, '([0-9]+)-*([0-9]*):*([0-9]*)') AS run) AS parsed
  WHERE i.attempt_id = attempt.id
    AND (i.first_step IS NULL OR i.first_step <= (SELECT MAX(step) FROM shown))
    AND (i.closed_wall_ns IS NULL OR i.last_step >= (SELECT MIN(step) FROM shown))
    AND p.rank BETWEEN run[1]::int AND COALESCE(NULLIF(run[2], ''), run[1])::int
    AND (p.rank - run[1]::int) % COALESCE(NULLIF(run[3], ''), '1')::int = 0
)
SELECT ((at_ns + x_ns) / 1e9)::float8 AS at_s,
  'rank ' || p.rank || CASE WHEN named.rank IS NULL THEN '' ELSE '{NAMED}' END AS metric,
  (own_ns / 1e9)::float8 AS own_s
FROM points p JOIN places USING (step) LEFT JOIN named ON named.rank = p.rank
ORDER BY at_s, p.rank"""

# A state lasts until the next: where nothing follows, or a step was left out, 3 ends it.
LANES = f"""\
{_NEWEST}, ends AS (
  SELECT rank, MAX(end_wall_ns) AS at_ns,
    LEAD(MIN(start_wall_ns)) OVER (PARTITION BY rank ORDER BY step) AS next_ns
  FROM newest GROUP BY rank, step
), changes AS (
  SELECT rank, start_wall_ns AS at_ns,
    CASE kind WHEN 'compute' THEN 0 WHEN 'wait' THEN 1 ELSE 2 END AS value
  FROM newest
  UNION ALL
  SELECT rank, at_ns, 3 FROM ends WHERE next_ns IS NULL OR next_ns > at_ns
)
SELECT to_timestamp(at_ns / 1e9) AS time,
  'rank ' || lpad(rank::text, (SELECT length(MAX(rank)::text) FROM newest)) AS metric,
  value::float8 AS value
FROM changes ORDER BY 1, rank"""

COSTLIEST_STEPS = f"""\
{_ATTEMPT}
SELECT s.step, to_timestamp(s.start_wall_ns / 1e9) AS began, s.duration_ns / 1e9 AS took_s,
  s.wait_ns / 1e9 AS stood_s, CASE WHEN s.slowest_rank < 0 THEN 'nobody'
    ELSE 'rank ' || s.slowest_rank END AS last_in,
  ((s.start_wall_ns - 4 * s.duration_ns) / 1000000)::text AS from_ms,
  ((s.start_wall_ns + 5 * s.duration_ns) / 1000000)::text AS to_ms
FROM step_summaries s
WHERE s.attempt_id = (SELECT id FROM attempt) AND s.step BETWEEN
    (SELECT l.step FROM lanes l WHERE l.attempt_id = (SELECT id FROM attempt)
      AND $__unixEpochNanoFilter(l.start_wall_ns) ORDER BY l.start_wall_ns LIMIT 1)
  AND
    (SELECT l.step FROM lanes l WHERE l.attempt_id = (SELECT id FROM attempt)
      AND $__unixEpochNanoFilter(l.start_wall_ns) ORDER BY l.start_wall_ns DESC LIMIT 1)
ORDER BY s.wait_ns DESC LIMIT 50"""

INCIDENTS = """\
SELECT to_timestamp(i.opened_wall_ns / 1e9) AS time,
  CASE WHEN i.closed_wall_ns IS NULL THEN LEAST(NOW(), to_timestamp($__unixEpochTo()))
    ELSE to_timestamp(i.closed_wall_ns / 1e9) END AS timeend,
  j.name || ': ' || i.kind || CASE i.ranks WHEN '' THEN '' ELSE ', rank ' || i.ranks END
    || ', cause ' || i.cause AS text,
  i.kind || ',' || i.cause AS tags
FROM incidents i JOIN job_attempts a ON a.id = i.attempt_id JOIN jobs j ON j.id = a.job_id
WHERE j.name ~ '^(${job:regex})$' AND i.opened_wall_ns <= $__unixEpochNanoTo()
  AND (i.closed_wall_ns IS NULL OR i.closed_wall_ns >= $__unixEpochNanoFrom())
ORDER BY i.opened_wall_ns DESC LIMIT 500"""
