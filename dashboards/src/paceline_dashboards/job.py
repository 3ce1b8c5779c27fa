"""The *Job* dashboard: who is slow, since when, what it costs, and whether to believe it."""

from __future__ import annotations

from grafanalib.core import Dashboard

from paceline_dashboards import frame, job_steps, shared
from paceline_dashboards.charts import EXPECTED, WORLD_SIZE, lines, states
from paceline_dashboards.layout import Section, line, section
from paceline_dashboards.panels import bar_gauge, limits, link, override, stat
from paceline_dashboards.promql import IN_JOB
from paceline_dashboards.queries import findings, variables
from paceline_dashboards.queries import job as q
from paceline_dashboards.targets import query, rows
from paceline_dashboards.words import (
    BAD,
    COMPUTE,
    GAP_PARTS,
    GOOD,
    NAMED,
    NEUTRAL,
    STANDS,
    TRANSFER,
    VERDICTS,
    WARNING,
    goes_on,
    value_mappings,
)

_TO_RANK = frame.to_dashboard(frame.RANK, job="${job}", rank="${__data.fields.rank}")
_TO_NODE = frame.to_dashboard(frame.RANK, job="${job}", node="${__data.fields.node:percentencode}")
_ON_PAGE = "${page}/#/jobs/${job}?rank=${__data.fields.rank}"


def _answer() -> Section:
    return section(
        "Who is slow, and what it costs",
        line(
            4,
            stat(
                "Verdict",
                "The collector's answer. Evidence and the next command are on the page.",
                query(findings.verdict(IN_JOB)),
                mappings=value_mappings(VERDICTS),
                thresholds=limits((None, NEUTRAL)),
                spark=False,
            ),
            stat(
                "Slow ranks",
                "Ranks that findings name now. None is good.",
                query(findings.FLAGGED_COUNT),
                thresholds=limits((None, GOOD), (1, BAD)),
            ),
            stat(
                "Slowdown S",
                "Time of all steps since the job began over what they would have taken without "
                "what the findings name; 1 is none.",
                query(q.SLOWDOWN),
                thresholds=limits((None, GOOD), (1.05, WARNING), (1.2, BAD)),
                decimals=2,
            ),
            stat(
                "Recoverable",
                "Share of its time that the job gets back from now on when what findings name now "
                "is gone. Of the steps since they began; the slowdown is of all steps.",
                query(q.RECOVERABLE),
                unit="percentunit",
                thresholds=limits((None, GOOD), (0.05, WARNING), (0.2, BAD)),
                decimals=1,
            ),
            stat(
                "Idle share",
                "Share of all ranks' time that is spent waiting for the last one to arrive.",
                query(q.IDLE),
                unit="percentunit",
                thresholds=limits((None, GOOD), (0.05, WARNING), (0.2, BAD)),
                decimals=1,
            ),
            shared.gamma(),
            stat(
                "Wasted so far",
                "GPU-hours that ranks have waited since the job began, blamed on some rank.",
                query(q.WASTED_HOURS),
                unit=shared.GPU_HOURS,
                thresholds=limits((None, NEUTRAL)),
                decimals=3,
            ),
            stat(
                "Wasted now",
                "GPUs that might as well be off: GPU-seconds of blamed waiting per second.",
                query(q.WASTED_NOW),
                unit="suffix: GPUs",
                thresholds=limits((None, GOOD), (1, WARNING)),
                decimals=1,
            ),
            widths=(3,) * 8,
        ),
        line(
            7,
            shared.ranks_and_cost(
                "Named ranks",
                "The ranks that findings name and that go on now, with the GPU time that they have "
                "cost since the job began. Arrived last: the share of the collectives that "
                "somebody waited in.",
                [
                    rows(findings.FLAGGED_NODE),
                    rows(q.FLAGGED_WASTED),
                    rows(q.FLAGGED_LATENESS),
                    rows(findings.SILENCED),
                ],
                more={"Value #D": "silenced"},
                overrides=[
                    override(
                        "rank",
                        links=[
                            *link("Beside its peers", _TO_RANK),
                            *link("On the page", _ON_PAGE, new_tab=True),
                        ],
                    ),
                    override("node", links=link("Look at the node", _TO_NODE)),
                    override("silenced", mappings=goes_on("#9fa7b3")),
                ],
            ),
            bar_gauge(
                "What draining gives back",
                "Share of the job's time that it would get back without the node.",
                query(q.NODE_RECOVERABLE, "{{node}}", instant=True),
                unit="percentunit",
                decimals=1,
            ),
            widths=(16, 8),
        ),
    )


def _steps() -> Section:
    return section(
        "Step time",
        line(
            8,
            lines(
                "Step time",
                "Mean, and the 99th percentile as exactly as the buckets of the histogram tell it. "
                "Dots, where Prometheus keeps exemplars: single steps with their slowest rank.",
                [query(q.STEP_MEAN, "mean"), query(q.STEP_P99, "99th percentile", exemplars=True)],
                unit="s",
            ),
            lines(
                "What a step consists of",
                "Mean over the ranks: own work, exposed communication, waiting for others.",
                [
                    query(q.SPLIT_SELF, "compute"),
                    query(q.SPLIT_TRANSFER, "exposed communication"),
                    query(q.SPLIT_WAIT, "wait"),
                ],
                unit="s",
                stacked=True,
                overrides=[
                    override(name, color={"mode": "fixed", "fixedColor": colour})
                    for name, colour in (
                        ("compute", COMPUTE),
                        ("exposed communication", TRANSFER),
                        ("wait", STANDS),
                    )
                ],
            ),
            lines(
                "Slowdown S and gamma",
                "Since the job began. S: step time over what it would be without the findings. "
                "Gamma: exposed communication over compute.",
                [query(q.SLOWDOWN, "slowdown S"), query(q.GAMMA, "gamma")],
            ),
        ),
        line(
            7,
            lines(
                "Expected and observed step",
                "Expected: what healthy ranks would take, by the compute, the jitter, alpha and "
                "beta fitted from this job. Both are means since the job began.",
                [query(q.OBSERVED_STEP, "observed"), query(q.EXPECTED_STEP, EXPECTED)],
                unit="s",
                overrides=[
                    override(
                        "observed",
                        color={"mode": "fixed", "fixedColor": COMPUTE},
                        custom__lineWidth=2,
                    )
                ],
            ),
            lines(
                "Where the difference comes from",
                "Observed less expected step. Host: hosts and input that come late. Slowdown: all "
                "ranks slower than before. Unexplained: no finding stands for it.",
                [query(q.STEP_GAP, "{{part}}")],
                unit="s",
                stacked=True,
                from_zero=False,
                overrides=[
                    override(part, color={"mode": "fixed", "fixedColor": colour})
                    for part, colour in GAP_PARTS
                ],
            ),
            widths=(12, 12),
        ),
    )


def _blame() -> Section:
    return section(
        "Blame and cost",
        line(
            8,
            lines(
                "GPUs standing for a rank",
                "GPU-seconds of waiting per second, blamed on the rank that caused it, after "
                "inherited lateness went back to its cause.",
                [query(q.BLAME_BY_RANK, "rank {{rank}}")],
                stacked=True,
            ),
            lines(
                "GPUs standing for a node",
                "The same by node, complete.",
                [query(q.BLAME_BY_NODE, "{{node}}")],
                stacked=True,
            ),
            lines(
                "By finding and cause",
                "GPU-seconds per second that findings have cost.",
                [query(q.BLAME_BY_CAUSE, "{{kind}}: {{cause}}")],
                stacked=True,
            ),
        ),
        line(
            7,
            states(
                "Findings",
                "When each finding went on.",
                [query(findings.GOING_ON, "{{kind}}: {{cause}}")],
                mappings=goes_on(NAMED),
                words=False,
                none="nothing was found in the time shown",
            ),
            states(
                "Named nodes",
                "When findings named a node or its ranks.",
                [query(findings.NODES_GOING_ON, "{{node}}: {{kind}}, {{cause}}")],
                mappings=goes_on(NAMED),
                words=False,
                none="no node was named in the time shown",
            ),
            lines(
                "Oldest collective in flight",
                "How long a rank has been in the collective that it is in. A line that climbs "
                "without end is a job that hangs.",
                [query(q.IN_FLIGHT, "rank {{rank}}")],
                unit="s",
                at_least=10,
            ),
        ),
    )


def _trust() -> Section:
    return section(
        "Whether to believe it",
        line(
            7,
            lines(
                "Ranks seen",
                "How many ranks send, by the state of their job, and how many the job has. Those "
                "that send nothing the verdict cannot see.",
                [
                    query(q.RANKS_SEEN, "{{state}}"),
                    query(q.WORLD_SIZE, WORLD_SIZE),
                    query(q.SILENT_RANKS, "silent ranks"),
                    query(q.RANK_SERIES, "with series of their own"),
                ],
            ),
            lines(
                "Steps",
                "The newest step that was analysed. A line that stops is a job that stands.",
                [query(q.LAST_STEP, "last step")],
                from_zero=False,
            ),
            lines(
                "Age of the answer, and sampling",
                "From the arrival of the newest analysed frame at the collector to its analysis, "
                "all jobs; and every which step the collector asks for while it cannot keep up.",
                [query(q.ANALYSIS_LAG, "analysis lag"), query(q.STRIDE, "stride")],
                overrides=[
                    override("analysis lag", unit="s"),
                    override("stride", custom__axisSoftMax=10, custom__axisPlacement="right"),
                ],
            ),
            shared.dropped("Dropped, all jobs"),
        ),
    )


def dashboard(sources: frame.Sources) -> Dashboard:
    """Return the dashboard of one job."""
    return frame.dashboard(
        frame.JOB,
        "Paceline / Job",
        "Which rank sets the pace of one training job, why, and what it costs.",
        [
            frame.job(),
            frame.several("rank", "Rank", variables.RANKS, of_all=True, by_number=True),
            *(
                [frame.span("lanes", "Lanes show", ("30s", "5s", "10s", "1m", "5m"))]
                if sources.sql
                else []
            ),
        ],
        [
            _answer(),
            job_steps.sawtooth_section(with_sql=sources.sql),
            job_steps.who_waits(),
            _steps(),
            _blame(),
            _trust(),
        ],
        sources=sources,
        page_path="#/jobs/${job}",
        incidents_of=IN_JOB,
    )
