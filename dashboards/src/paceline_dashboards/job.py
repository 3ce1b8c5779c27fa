"""The *Job* dashboard: who is slow, since when, what it costs, and whether to believe it."""

from __future__ import annotations

from grafanalib.core import Dashboard, GridPos, Panel, Template, Templating, Time

from paceline_dashboards import queries
from paceline_dashboards.panels import (
    BAD,
    DATA_SOURCE,
    GOOD,
    NEUTRAL,
    WARNING,
    bar_gauge,
    heatmap,
    lines,
    query,
    row,
    stat,
    steps,
    table,
)

UID = "paceline-job"


def _answer() -> list[Panel]:
    return [
        row("Who is slow, and what it costs", 0),
        stat(
            "Slow ranks",
            "Ranks that Paceline names as the ones that set the pace. None is good.",
            query(queries.FLAGGED_COUNT),
            GridPos(h=4, w=4, x=0, y=1),
            unit="none",
            decimals=0,
            limits=steps((None, GOOD), (1, BAD)),
        ),
        stat(
            "Slowdown",
            "Time of a step divided by what it would be without the slow ranks; 1 is none.",
            query(queries.SLOWDOWN),
            GridPos(h=4, w=4, x=4, y=1),
            unit="none",
            decimals=2,
            limits=steps((None, GOOD), (1.05, WARNING), (1.2, BAD)),
        ),
        stat(
            "Idle share",
            "Share of all ranks' time that is spent waiting for the last one to arrive.",
            query(queries.IDLE),
            GridPos(h=4, w=4, x=0, y=5),
            unit="percentunit",
            decimals=1,
            limits=steps((None, GOOD), (0.05, WARNING), (0.2, BAD)),
        ),
        stat(
            "Wasted GPU-seconds",
            "Time that ranks have waited for others since the job began, whoever caused it.",
            query(queries.WASTED),
            GridPos(h=4, w=4, x=4, y=5),
            unit="s",
            decimals=1,
            limits=steps((None, NEUTRAL)),
        ),
        table(
            "Named ranks",
            "The ranks that findings name and that go on now, with their cost since the job began. "
            "Arrived last: the share of the collectives that somebody waited in.",
            [
                query(queries.FLAGGED_WASTED, instant=True, table=True),
                query(queries.FLAGGED_LATENESS, instant=True, table=True),
            ],
            GridPos(h=8, w=16, x=8, y=1),
            columns={
                "rank": "rank",
                "kind": "finding",
                "cause": "cause",
                "Value #A": "wasted GPU-seconds",
                "Value #B": "arrived last",
            },
            units={"wasted GPU-seconds": "s", "arrived last": "percentunit"},
            sort_by="wasted GPU-seconds",
        ),
    ]


def _sawtooth() -> list[Panel]:
    return [
        row("The sawtooth: fast ranks stand, the slow one never does", 9),
        heatmap(
            "Idle share, rank by time",
            "Dark: the rank waits for others. A pale row among dark ones is the rank that all "
            "others wait for.",
            query(queries.WAIT_SHARE, "{{rank}}"),
            GridPos(h=10, w=16, x=0, y=10),
        ),
        bar_gauge(
            "Share of time others waited for this rank",
            "Summed over the ranks that waited: 3 means that three ranks stood still all the time.",
            query(queries.CAUSED_WAIT_SHARE, "rank {{rank}}"),
            GridPos(h=10, w=8, x=16, y=10),
            unit="none",
        ),
        lines(
            "Idle share per rank",
            "Seconds per second that each rank waits at collectives for the last to arrive.",
            [query(queries.WAIT_SHARE, "rank {{rank}}")],
            GridPos(h=8, w=12, x=0, y=20),
            unit="percentunit",
            top_is_one=True,
        ),
        lines(
            "Own work per rank",
            "Seconds per second that each rank spends on its own work, neither waiting nor "
            "communicating. The slow rank is the highest line.",
            [query(queries.SELF_SHARE, "rank {{rank}}")],
            GridPos(h=8, w=12, x=12, y=20),
            unit="percentunit",
            top_is_one=True,
        ),
    ]


def _steps() -> list[Panel]:
    return [
        row("Steps", 28),
        lines(
            "Step time",
            "Median and 99th percentile of the time of a step.",
            [query(queries.STEP_P50, "median"), query(queries.STEP_P99, "99th percentile")],
            GridPos(h=8, w=8, x=0, y=29),
            unit="s",
        ),
        lines(
            "Slowdown and gamma",
            "Gamma is exposed communication divided by compute: above 1 the network sets the pace.",
            [query(queries.SLOWDOWN, "slowdown"), query(queries.GAMMA, "gamma")],
            GridPos(h=8, w=8, x=8, y=29),
            unit="none",
        ),
        lines(
            "Wasted GPU-seconds by rank",
            "Time that others have waited since the job began, blamed on the rank that caused it.",
            [query(queries.WASTED_BY_RANK, "rank {{rank}}")],
            GridPos(h=8, w=8, x=16, y=29),
            unit="s",
        ),
    ]


def _trust() -> list[Panel]:
    return [
        row("Whether to believe it", 37),
        lines(
            "Ranks seen",
            "How many ranks send, by the state of their job. Fewer than the job has: some send "
            "nothing, and the verdict cannot see them.",
            [query(queries.RANKS_SEEN, "{{state}}")],
            GridPos(h=7, w=8, x=0, y=38),
            unit="none",
        ),
        lines(
            "Age of the answer, all jobs",
            "From the arrival of the newest analysed frame at the collector to its analysis.",
            [query(queries.ANALYSIS_LAG, "analysis lag")],
            GridPos(h=7, w=8, x=8, y=38),
            unit="s",
        ),
        lines(
            "Dropped, all jobs",
            "What Paceline could not keep, by stage and reason. Anything here makes verdicts less "
            "sure; they say so.",
            [query(queries.DROPPED, "{{stage}}: {{reason}}")],
            GridPos(h=7, w=8, x=16, y=38),
            unit="short",
        ),
    ]


def _variables() -> Templating:
    return Templating(
        list=[
            Template(name="datasource", label="Data source", type="datasource", query="prometheus"),
            Template(name="job", label="Job", query=queries.JOBS, dataSource=DATA_SOURCE),
            Template(
                name="rank",
                label="Rank",
                query=queries.RANKS,
                dataSource=DATA_SOURCE,
                includeAll=True,
                multi=True,
                allValue=".*",
                default="$__all",
                sort=3,  # by number
            ),
        ]
    )


def dashboard() -> Dashboard:
    """Return the dashboard of one job."""
    return Dashboard(
        title="Paceline / Job",
        uid=UID,
        description="Which rank sets the pace of one training job, why, and what it costs.",
        tags=["paceline"],
        timezone="browser",
        refresh="10s",
        time=Time("now-30m", "now"),
        graphTooltip=1,  # one crosshair over all panels
        editable=False,
        templating=_variables(),
        panels=[*_answer(), *_sawtooth(), *_steps(), *_trust()],
    )
