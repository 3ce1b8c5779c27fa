"""The *Network* dashboard: are transfers slower than they were, in which group, over which link."""

from __future__ import annotations

from grafanalib.core import Dashboard

from paceline_dashboards import frame, shared
from paceline_dashboards.charts import lines, states
from paceline_dashboards.layout import Section, line, section
from paceline_dashboards.panels import bar_gauge, limits, override, stat, table
from paceline_dashboards.promql import IN_JOB
from paceline_dashboards.queries import network as q
from paceline_dashboards.queries import variables
from paceline_dashboards.targets import query, rows
from paceline_dashboards.words import BAD, COMPUTE, GOOD, NAMED, NEUTRAL, WARNING, goes_on

_BYTES = "Bps"


def _answer() -> Section:
    return section(
        "Is it the network?",
        line(
            6,
            stat(
                "Worst residual",
                "Newest transfers of a group over what its own fit of alpha and beta expects of "
                "them: 1 is as expected, 2 takes twice as long.",
                query(q.WORST_RESIDUAL),
                thresholds=limits((None, GOOD), (1.25, WARNING), (2, BAD)),
                decimals=2,
            ),
            stat(
                "Slow links",
                "Pairs of ranks whose link a finding names now.",
                query(q.LINK_COUNT),
                thresholds=limits((None, GOOD), (1, BAD)),
            ),
            stat(
                "Exposed",
                "Share of all ranks' time in which they do nothing but transfer data.",
                query(q.EXPOSED_SHARE),
                unit="percentunit",
                thresholds=limits((None, NEUTRAL), (0.3, WARNING)),
                decimals=1,
            ),
            shared.gamma(),
            table(
                "Which links",
                "From which rank to which rank. A rank that is the source of all of them has a "
                "slow way out.",
                [rows(q.LINKS)],
                columns={"source": "from rank", "destination": "to rank"},
                sort_by="from rank",
                descending=False,
            ),
            states(
                "Findings about the network",
                "When findings of slow or dominating communication went on.",
                [query(q.NETWORK_FINDINGS, "{{kind}}: {{cause}}")],
                mappings=goes_on(NAMED),
                words=False,
                none="nothing was found in the time shown",
            ),
            widths=(3, 3, 3, 3, 4, 8),
        ),
    )


def _groups() -> Section:
    whose = "{{group}} {{op}}"
    return section(
        "Groups",
        line(
            9,
            lines(
                "Residual: measured over expected",
                "1 is what the group's own past leads to expect at that size. A group that rises "
                "alone has a slow part; all together: the fabric.",
                [query(q.RESIDUAL, whose)],
                from_zero=False,
                overrides=[],
            ),
            lines(
                "Bus bandwidth",
                "Of the newest large transfers, comparable between operations and group sizes.",
                [query(q.BUSBW, whose)],
                unit=_BYTES,
            ),
            bar_gauge(
                "Slowest groups",
                "Bus bandwidth now, the twelve slowest.",
                query(q.SLOWEST_BUSBW, whose, instant=True),
                unit=_BYTES,
                colour=COMPUTE,
            ),
            widths=(9, 9, 6),
        ),
        line(
            8,
            lines(
                "How long a transfer takes",
                "From the last arrival to the release, without anybody's wait: mean, and 99th "
                "percentile as exactly as the histogram's buckets tell it.",
                [
                    query(q.TRANSFER_MEAN, f"{whose} mean"),
                    query(q.TRANSFER_P99, f"{whose} 99th percentile"),
                ],
                unit="s",
            ),
            lines(
                "Transfers in a second",
                "By group and operation.",
                [query(q.TRANSFERS, whose)],
                unit="short",
            ),
            lines(
                "Transferring at a time",
                "Seconds of transfer per second: how many transfers of the group are under way.",
                [query(q.TRANSFER_SHARE, whose)],
            ),
        ),
        line(
            8,
            table(
                "The fit",
                "A transfer takes alpha + bytes / beta. Beta is how fast bytes go, alpha what a "
                "transfer costs without any.",
                [rows(q.ALPHA), rows(q.BETA), rows(q.BUSBW), rows(q.RESIDUAL)],
                columns={
                    "group": "group",
                    "op": "operation",
                    "Value #A": "alpha",
                    "Value #B": "beta",
                    "Value #C": "bus bandwidth",
                    "Value #D": "residual",
                },
                sort_by="residual",
                overrides=[
                    override("alpha", unit="s"),
                    override("beta", unit=_BYTES),
                    override("bus bandwidth", unit=_BYTES),
                    override("residual", decimals=2),
                ],
            ),
            lines(
                "Exposed communication, rank by rank",
                "Seconds per second in which a rank does nothing but transfer data.",
                [query(q.EXPOSED_BY_RANK, "rank {{rank}}")],
                unit="percentunit",
            ),
            widths=(14, 10),
        ),
    )


def _ports() -> Section:
    return section(
        "InfiniBand",
        line(
            7,
            shared.port_traffic("Traffic", q.IB_BYTES),
            shared.port_errors("Errors", q.IB_ERRORS),
        ),
    )


def dashboard(sources: frame.Sources) -> Dashboard:
    """Return the dashboard of a job's network."""
    return frame.dashboard(
        frame.NETWORK,
        "Paceline / Network",
        "Transfers of one job without the waits: bandwidth, fit and residual by group, slow links.",
        [frame.job(), frame.several("group", "Group", variables.GROUPS, of_all=True)],
        [_answer(), _groups(), _ports()],
        sources=sources,
        page_path="#/jobs/${job}",
        incidents_of=IN_JOB,
    )
