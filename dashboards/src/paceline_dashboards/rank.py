"""The *Rank and node* dashboard: what chosen ranks do, and their hardware, beside their peers."""

from __future__ import annotations

from grafanalib.core import Dashboard, Panel

from paceline import metrics as m
from paceline.metrics import Metric
from paceline_dashboards import frame, shared
from paceline_dashboards.charts import LIMIT, MEDIAN, bars, lines, states
from paceline_dashboards.layout import Section, line, section
from paceline_dashboards.panels import bar_gauge, override, table
from paceline_dashboards.promql import IN_JOB
from paceline_dashboards.queries import rank as q
from paceline_dashboards.queries import steps, variables
from paceline_dashboards.targets import query, rows
from paceline_dashboards.words import COMPUTE, NAMED, TRANSFER, goes_on


def _who() -> Section:
    return section(
        "Who",
        line(
            7,
            shared.ranks_and_cost(
                "Chosen ranks",
                "Where they are, the GPU time that they have cost since the job began, and what "
                "findings say of them now.",
                [
                    rows(q.PLACE),
                    rows(q.WASTED),
                    rows(q.LATENESS),
                    rows(q.FLAGGED),
                    rows(q.GPU_LOST),
                ],
                more={"Value #E": "GPU lost"},
                overrides=[override("GPU lost", mappings=goes_on("#e02f44"))],
            ),
            table(
                "Their nodes",
                "GPU-hours that a node has cost this job, what the job would get back without it, "
                "and how often incidents of 30 days have named it.",
                [
                    rows(q.NODE_WASTED),
                    rows(q.NODE_RECOVERABLE),
                    rows(q.NODE_OFFENCES),
                    rows(q.NODE_FLAGGED),
                ],
                columns={
                    "node": "node",
                    "kind": "finding",
                    "cause": "cause",
                    "Value #A": "GPU-hours",
                    "Value #B": "recoverable",
                    "Value #C": "incidents",
                },
                sort_by="GPU-hours",
                overrides=[
                    override("GPU-hours", decimals=3),
                    override("recoverable", unit="percentunit", decimals=1),
                ],
            ),
        ),
    )


def _work() -> Section:
    return section(
        "Work, beside the peers",
        line(
            8,
            shared.own_work(),
            bars(
                "Phases of a step",
                "The mean of the chosen ranks beside the median of all: where they differ.",
                [rows(q.PHASES), rows(q.PHASES_MEDIAN)],
                by="phase",
                names=("chosen ranks", MEDIAN),
                colours=(COMPUTE, TRANSFER),
                unit="s",
                stacked=False,
            ),
            lines(
                "Phases over time",
                "Own time of the chosen ranks in a step, by phase.",
                [query(q.PHASES_OVER_TIME, "{{phase}}")],
                unit="s",
                stacked=True,
            ),
        ),
        line(
            7,
            shared.standing(),
            lines(
                "Exposed communication in a step",
                "Time in which a rank does nothing but transfer data.",
                [query(steps.TRANSFERS, shared.BY_RANK)],
                unit="s",
            ),
            lines(
                "Own work in a step and rank, by node",
                "A whole node above the dashed line is slow for a reason that its ranks share.",
                [query(q.NODE_SELF, "{{node}}"), query(q.NODE_SELF_MEDIAN, MEDIAN)],
                unit="s",
            ),
            bar_gauge(
                "Ranks that wait for a node",
                "Waiting ranks, on average, because a rank of the node arrived last.",
                query(q.NODE_CAUSED, "{{node}}", instant=True),
            ),
        ),
    )


def _gauge(
    title: str, about: str, gauge: Metric, *, unit: str, limit: str = "", from_zero: bool = False
) -> Panel:
    targets = [
        query(q.newest(gauge), "rank {{rank}}"),
        query(q.newest_median(gauge), MEDIAN),
    ]
    if limit:
        targets.append(query(limit, LIMIT))
    return lines(title, about, targets, unit=unit, from_zero=from_zero)


def _gpu() -> Section:
    return section(
        "GPU",
        line(
            8,
            _gauge(
                "SM clock",
                "A rank below its peers computes slower; limit: the highest clock of the chosen "
                "ranks' GPUs.",
                m.RANK_SM_CLOCK_HERTZ,
                unit="hertz",
                limit=q.GPU_CLOCK_LIMIT,
            ),
            states(
                "Throttle reasons",
                "What holds the clocks down, while it does.",
                [query(q.THROTTLED, "rank {{rank}}: {{reason}}")],
                mappings=goes_on(NAMED),
                words=False,
                none="nothing held the clocks down",
            ),
            lines(
                "Share of time throttled",
                "Seconds per second for which a reason held the clocks down.",
                [query(q.THROTTLE_SHARE, "rank {{rank}}: {{reason}}")],
                unit="percentunit",
            ),
        ),
        line(
            7,
            _gauge(
                "Temperature",
                "Of the GPU. One hotter than its peers will throttle before them.",
                m.RANK_GPU_TEMPERATURE_CELSIUS,
                unit="celsius",
            ),
            _gauge(
                "Temperature of memory",
                "Of the GPU's memory, which throttles by limits of its own.",
                m.RANK_GPU_MEMORY_TEMPERATURE_CELSIUS,
                unit="celsius",
            ),
            _gauge(
                "Power",
                "What the GPU draws; limit: the power limit in force.",
                m.RANK_GPU_POWER_WATTS,
                unit="watt",
                limit=q.GPU_POWER_LIMIT,
            ),
            _gauge(
                "Busy",
                "Share of the time in which a kernel ran. Waiting in a collective counts as busy.",
                m.RANK_GPU_BUSY_RATIO,
                unit="percentunit",
                from_zero=True,
            ),
        ),
        line(
            7,
            _gauge(
                "Memory in use",
                "On the GPU, by all processes.",
                m.RANK_GPU_MEMORY_USED_BYTES,
                unit="bytes",
                from_zero=True,
            ),
            lines(
                "ECC errors",
                "Memory errors, corrected and not, in the time shown.",
                [query(q.ECC_ERRORS, "rank {{rank}}: {{kind}}")],
                unit="short",
                at_least=1,
            ),
            lines(
                "PCIe replays",
                "Transfers in a second that had to be repeated: a riser, a slot, a cable.",
                [query(q.PCIE_REPLAYS, "rank {{rank}}")],
                unit="short",
                at_least=1,
            ),
            lines(
                "NVLink errors",
                "CRC, replay and recovery errors in a second.",
                [query(q.NVLINK_ERRORS, "rank {{rank}}")],
                unit="short",
                at_least=1,
            ),
        ),
    )


def _host() -> Section:
    return section(
        "Host",
        line(
            7,
            lines(
                "CPU",
                "Share of all CPUs of the node. Steal and iowait are time that nobody gets.",
                [query(q.NODE_CPU, "{{node}}: {{mode}}")],
                unit="percentunit",
            ),
            lines(
                "Load",
                "Load average over a minute.",
                [query(q.NODE_LOAD, "{{node}}")],
            ),
            lines(
                "Stalls",
                "Share of the time in which some task waited for cpu, memory or io.",
                [query(q.NODE_STALL, "{{node}}: {{resource}}")],
                unit="percentunit",
            ),
            lines(
                "Ranks that wait for a CPU",
                "Share of the time in which a rank's main thread was ready and had none, or a CPU "
                "limit stopped it.",
                [
                    query(q.RUN_QUEUE, "rank {{rank}}: ready"),
                    query(q.CPU_THROTTLED, "rank {{rank}}: limited"),
                ],
                unit="percentunit",
            ),
        ),
        line(
            7,
            lines(
                "Memory that can be had",
                "Memory of the node that can still be had without swapping.",
                [query(q.NODE_MEMORY, "{{node}}")],
                unit="bytes",
            ),
            lines(
                "Killed for want of memory",
                "Processes of the node in the time shown.",
                [query(q.NODE_OOM_KILLS, "{{node}}")],
                at_least=1,
            ),
        ),
    )


def _network() -> Section:
    return section(
        "Network of the node",
        line(
            7,
            shared.port_traffic("InfiniBand traffic", q.IB_BYTES),
            shared.port_errors("InfiniBand errors", q.IB_ERRORS),
            lines(
                "InfiniBand, data without credit",
                "Ticks in a second in which a port had data to send and might not.",
                [query(q.IB_XMIT_WAIT, "{{node}} {{device}}")],
                unit="short",
            ),
            states(
                "InfiniBand ports",
                "Which ports are up. One that is down sends its traffic through others.",
                [query(q.IB_UP, "{{node}} {{device}}")],
                mappings=goes_on("#3274d9"),
                none="no InfiniBand was told of",
            ),
        ),
        line(
            7,
            lines(
                "Other network traffic",
                "Bytes a second by device and direction, the sixteen busiest.",
                [query(q.NIC_BYTES, "{{node}} {{device}} {{direction}}")],
                unit="Bps",
            ),
            lines(
                "Other network errors",
                "Packets a second that were bad or dropped.",
                [query(q.NIC_ERRORS, "{{node}} {{device}}")],
                unit="short",
                at_least=1,
            ),
        ),
    )


def dashboard(sources: frame.Sources) -> Dashboard:
    """Return the dashboard of chosen ranks and nodes."""
    return frame.dashboard(
        frame.RANK,
        "Paceline / Rank and node",
        "Chosen ranks and nodes beside their peers: phases, clocks, throttling, links, host.",
        [
            frame.job(),
            frame.several("node", "Node", variables.NODES, of_all=True),
            frame.several("rank", "Rank", variables.RANKS_OF_NODES, of_all=False, by_number=True),
        ],
        [_who(), _work(), _gpu(), _host(), _network()],
        sources=sources,
        page_path="#/jobs/${job}",
        incidents_of=IN_JOB,
    )
