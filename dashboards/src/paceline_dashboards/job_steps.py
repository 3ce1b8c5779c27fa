"""The parts of the *Job* dashboard that show who stands: sawtooth, idle heatmap, lanes."""

from __future__ import annotations

from paceline_dashboards import frame, shared
from paceline_dashboards.charts import bars, heatmap, sawtooth, states
from paceline_dashboards.layout import Line, Section, line, section
from paceline_dashboards.panels import bar_gauge, link, override, table
from paceline_dashboards.queries import job as q
from paceline_dashboards.queries import sql as statements
from paceline_dashboards.targets import query, rows, sql
from paceline_dashboards.words import COMPUTE, LANES, STANDS, TRANSFER, value_mappings

_TO_STEP = (
    f"/d/{frame.JOB}?${{datasource:queryparam}}&${{sql:queryparam}}&${{page:queryparam}}"
    "&var-job=${job}&from=${__data.fields.from_ms}&to=${__data.fields.to_ms}"
)


# Grafana 13 goes by hideFrom, older ones by hidden.
_HIDDEN = {"viz": True, "legend": False, "tooltip": False}


def sawtooth_section(*, with_sql: bool) -> Section:
    """Return the sawtooth: of single steps with PostgreSQL, of the mean step without."""
    mean = bars(
        "The mean step, rank by rank",
        "What each rank does in a step of the time shown. All bars are equally high: nobody is "
        "through before the last one has arrived. The slow rank is the one that does not stand.",
        [rows(q.MEAN_SELF), rows(q.MEAN_TRANSFER), rows(q.MEAN_WAIT)],
        by="rank",
        names=("works", "transfers", "stands"),
        colours=(COMPUTE, TRANSFER, STANDS),
        unit="s",
        stacked=True,
        number=True,
    )
    standing = shared.standing()
    teeth = sawtooth(
        "The sawtooth: the newest steps",
        "A tooth per step and rank: it climbs while the rank works, and runs level while it "
        "stands and waits. Fast ranks level off in unison; the slow one climbs to the end. Thick: "
        "a finding names it.",
        sql(statements.SAWTOOTH),
        slow=r"\(named\)",
    )
    lines_of_it = (
        (line(10, teeth, widths=(24,)), _lanes(), line(9, mean, standing, widths=(9, 15)))
        if with_sql
        else (line(10, mean, standing, widths=(9, 15)),)
    )
    return section("The sawtooth: fast ranks stand, the slow one never does", *lines_of_it)


def who_waits() -> Section:
    """Return who waits, over time, and for whom."""
    return section(
        "Who waits for whom",
        line(
            10,
            heatmap(
                "Idle share, rank by time",
                "The stronger the colour, the more the rank waits. A faint row among strong ones "
                "is the rank that all others wait for.",
                query(q.IDLE_BY_RANK, "{{row}}"),
            ),
            bar_gauge(
                "Ranks others wait for",
                "Waiting ranks, on average: 3 means that three ranks stood still all the time "
                "because this one arrived last.",
                query(q.CAUSED_WAIT, "rank {{rank}}", instant=True),
            ),
            widths=(16, 8),
        ),
        line(
            8,
            heatmap(
                "Idle share, node by time",
                "The same by node, complete however many ranks there are.",
                query(q.IDLE_BY_NODE, "{{node}}"),
            ),
            shared.own_work(),
        ),
    )


def _lanes() -> Line:
    return line(
        10,
        states(
            "Lanes",
            "What each rank did, on its node's clock: works, stands (has arrived and waits for "
            "the last one), transfers. Live, the newest part: *Lanes show* above says how "
            "much. Otherwise the time that is chosen; zoom in, or click on a step beside.",
            [sql(statements.LANES, series=True)],
            mappings=value_mappings((*LANES, (" ", "transparent"))),
            words=False,
            filled=True,
            row_height=0.9,
            none="no lanes in the time shown",
            newest="$lanes",
        ),
        table(
            "Costliest steps in the time shown",
            "The steps in which ranks waited longest, summed over the ranks. A click on a "
            "step shows it in the lanes.",
            [sql(statements.COSTLIEST_STEPS)],
            columns={
                "step": "step",
                "began": "began",
                "took_s": "took",
                "stood_s": "stood",
                "last_in": "last in",
                "from_ms": "from_ms",
                "to_ms": "to_ms",
            },
            sort_by="stood",
            overrides=[
                override("step", links=link("Show in the lanes", _TO_STEP)),
                override("took", unit="s", decimals=3),
                override("stood", unit="s", decimals=3),
                override("began", unit="time:HH:mm:ss.SSS"),
                override("from_ms", custom__hideFrom=_HIDDEN, custom__hidden=True),
                override("to_ms", custom__hideFrom=_HIDDEN, custom__hidden=True),
            ],
        ),
        widths=(15, 9),
    )
