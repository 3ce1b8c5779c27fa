"""The *Fleet* dashboard: which jobs lose time, to whom, and which nodes do it again and again."""

from __future__ import annotations

from grafanalib.core import Dashboard

from paceline_dashboards import frame, shared
from paceline_dashboards.charts import lines, states
from paceline_dashboards.layout import Section, line, section
from paceline_dashboards.panels import bar_gauge, limits, link, override, stat, table
from paceline_dashboards.promql import ALL_JOBS
from paceline_dashboards.queries import findings
from paceline_dashboards.queries import fleet as q
from paceline_dashboards.targets import query, rows
from paceline_dashboards.words import BAD, GOOD, NEUTRAL, VERDICTS, WARNING, value_mappings

_TO_JOB = frame.to_dashboard(frame.JOB, job="${__data.fields.job}")
_TO_NODE = frame.to_dashboard(
    frame.RANK, job="${__data.fields.job}", node="${__data.fields.node:percentencode}"
)


def _now() -> Section:
    return section(
        "Now",
        line(
            4,
            stat(
                "Jobs running",
                "Jobs whose ranks have sent something lately.",
                query(q.RUNNING),
                thresholds=limits((None, NEUTRAL)),
            ),
            stat(
                "Their ranks",
                "Sum of the world sizes of the jobs that run.",
                query(q.RANKS),
                thresholds=limits((None, NEUTRAL)),
            ),
            stat(
                "With findings",
                "Running jobs in which something is wrong now: a slow rank, a hang.",
                query(q.TROUBLED),
                thresholds=limits((None, GOOD), (1, BAD)),
            ),
            stat(
                "GPUs standing now",
                "GPU-seconds lost per second, blamed on a rank: so many GPUs might as well be off.",
                query(q.WASTED_NOW),
                thresholds=limits((None, GOOD), (1, WARNING), (16, BAD)),
                decimals=1,
            ),
            stat(
                "Wasted",
                "GPU-hours of the time shown in which ranks waited and somebody was to blame.",
                query(q.WASTED_HOURS),
                unit=shared.GPU_HOURS,
                thresholds=limits((None, NEUTRAL)),
                decimals=2,
            ),
            stat(
                "Share of time standing",
                "Of all ranks' time, what they spend waiting for others to arrive.",
                query(q.STANDING),
                unit="percentunit",
                thresholds=limits((None, GOOD), (0.05, WARNING), (0.2, BAD)),
                decimals=1,
            ),
            stat(
                "Silent ranks",
                "Ranks of running jobs that have not been heard of: their sidecars, nodes or "
                "network may be gone.",
                query(q.SILENT),
                thresholds=limits((None, GOOD), (1, WARNING)),
            ),
            widths=(3, 3, 3, 4, 4, 4, 3),
        ),
        line(
            9,
            table(
                "Jobs",
                "Every job that the collector has in memory. Slowdown: its step time over what it "
                "would be without what the findings name. A click on a job opens it.",
                [
                    rows(q.JOB_VERDICT),
                    rows(q.JOB_SLOWDOWN),
                    rows(q.JOB_RECOVERABLE),
                    rows(q.JOB_WASTED_HOURS),
                    rows(q.JOB_IDLE),
                    rows(q.JOB_GAMMA),
                    rows(q.JOB_SIZE),
                    rows(q.JOB_STEP),
                ],
                columns={
                    "job": "job",
                    "verdict": "verdict",
                    "Value #B": "slowdown",
                    "Value #C": "recoverable",
                    "Value #D": "GPU-hours lost",
                    "Value #E": "standing",
                    "Value #F": "gamma",
                    "Value #G": "ranks",
                    "Value #H": "last step",
                },
                sort_by="GPU-hours lost",
                overrides=[
                    override("job", links=link("Open the job", _TO_JOB)),
                    override("slowdown", decimals=2),
                    override("recoverable", unit="percentunit", decimals=1),
                    override("GPU-hours lost", decimals=2),
                    override("standing", unit="percentunit", decimals=1),
                    override("gamma", decimals=2),
                ],
            ),
        ),
    )


def _where_it_goes() -> Section:
    return section(
        "Where the time goes",
        line(
            8,
            lines(
                "GPUs standing, by job",
                "GPU-seconds lost per second and blamed on a rank, the ten largest.",
                [query(q.WASTED_BY_JOB, "{{job}}")],
                stacked=True,
            ),
            lines(
                "GPUs standing, by finding and cause",
                "The same by what was found, over all jobs.",
                [query(q.WASTED_BY_CAUSE, "{{kind}}: {{cause}}")],
                stacked=True,
            ),
        ),
        line(
            7,
            states(
                "Verdicts",
                "What each job's verdict was at what time.",
                [query(findings.verdict(ALL_JOBS), "{{job}}")],
                mappings=value_mappings(VERDICTS),
            ),
        ),
    )


def _nodes() -> Section:
    return section(
        "Nodes",
        line(
            9,
            bar_gauge(
                "Worst nodes in the time shown",
                "GPU-hours of waiting that are blamed on the ranks of a node, over all jobs.",
                query(q.WORST_NODES, "{{node}}", instant=True),
                unit=shared.GPU_HOURS,
            ),
            table(
                "What draining gives back",
                "Share of the job's time that it would get back without this node.",
                [rows(q.DRAINING)],
                columns={"node": "node", "job": "job", "Value": "recoverable"},
                sort_by="recoverable",
                overrides=[
                    override("recoverable", unit="percentunit", decimals=1),
                    override("node", links=link("Look at the node", _TO_NODE)),
                    override("job", links=link("Open the job", _TO_JOB)),
                ],
            ),
            table(
                "Repeat offenders",
                "Nodes that incidents of the last 30 days have named, most often first; and the "
                "GPU-hours that they have cost in the time shown.",
                [rows(q.OFFENCES), rows(q.OFFENDERS_HOURS)],
                columns={
                    "node": "node",
                    "Value #A": "incidents",
                    "Value #B": "GPU-hours lost",
                },
                sort_by="incidents",
                overrides=[override("GPU-hours lost", decimals=2)],
            ),
        ),
        line(
            7,
            table(
                "Nodes that findings name now",
                "The node to drain, and why.",
                [rows(q.FLAGGED_NODES)],
                columns={"node": "node", "job": "job", "kind": "finding", "cause": "cause"},
                sort_by="node",
                descending=False,
                overrides=[
                    override("node", links=link("Look at the node", _TO_NODE)),
                    override("job", links=link("Open the job", _TO_JOB)),
                ],
            ),
        ),
    )


def dashboard(sources: frame.Sources) -> Dashboard:
    """Return the dashboard of all jobs."""
    return frame.dashboard(
        frame.FLEET,
        "Paceline / Fleet",
        "All training jobs: who loses time, how many GPU-hours, and to which nodes.",
        [frame.job(many=True)],
        [_now(), _where_it_goes(), _nodes()],
        sources=sources,
        incidents_of=ALL_JOBS,
    )
