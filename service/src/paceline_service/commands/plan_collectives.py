"""``paceline plan collectives``: what collectives cost, and which algorithm at which size."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from paceline.counted import counted
from paceline.errors import ConfigError
from paceline_service.analysis.costs import units
from paceline_service.analysis.costs.alpha_beta import Link, Machine
from paceline_service.analysis.costs.collectives import ALGORITHMS
from paceline_service.analysis.costs.words import bandwidth_of, duration_of
from paceline_service.commands.answer import PLAN, Answer, FormatOption, give
from paceline_service.commands.figures import HtmlOption, PngOption
from paceline_service.commands.output import Format
from paceline_service.commands.plan_collectives_tables import costs_table, sizes_table
from paceline_service.commands.plan_collectives_words import judge, meaning

_SIZES = "1kB,10kB,100kB,1MB,10MB,100MB,1GB"
_ALL = "all"


def plan_collectives(
    op: Annotated[
        str, typer.Option(metavar="OPS", help=f"Of {', '.join(ALGORITHMS)}, or all.")
    ] = "all_reduce",
    ranks: Annotated[str, typer.Option(metavar="K", help="That take part.")] = "64",
    bandwidth: Annotated[
        str, typer.Option(metavar="B", help="Out of a rank, one direction: 50GB/s or 400Gb/s.")
    ] = "50GB/s",
    latency: Annotated[str, typer.Option(metavar="TIME", help="Of a message (alpha).")] = "5us",
    ranks_per_node: Annotated[
        str, typer.Option(metavar="G", help="If there are nodes with faster links inside.")
    ] = "1",
    node_bandwidth: Annotated[
        str | None, typer.Option(metavar="B", help="Out of a rank to its node: 450GB/s.")
    ] = None,
    node_latency: Annotated[
        str | None, typer.Option(metavar="TIME", help="Of a message in a node; else --latency.")
    ] = None,
    servers: Annotated[
        str, typer.Option(metavar="N", help="Machines that serve parameters, beside the ranks.")
    ] = "1",
    sizes: Annotated[
        str, typer.Option("--bytes", metavar="LIST", help="Payloads to compare.")
    ] = _SIZES,
    output_format: FormatOption = Format.TEXT,
    html: HtmlOption = None,
    png: PngOption = None,
) -> int:
    """Say what each algorithm of a collective costs, and which is cheapest at which size.

    alpha + bytes / B per message (docs/math/costs.md). The payload is the whole buffer, as in
    nccl-tests.
    """
    machine = _machine(ranks, ranks_per_node, bandwidth, latency, node_bandwidth, node_latency)
    amount = units.parse_count(servers, "--servers", unit="servers")
    payloads = sorted({units.parse_bytes(part, "--bytes") for part in sizes.split(",")})
    judged = [judge(one, machine, amount, payloads) for one in _operations(op)]
    tables = []
    for one in judged:
        tables += [costs_table(one), sizes_table(one)]
    answer = Answer(
        schema=PLAN, model="collectives", title="Collectives by the alpha-beta model",
        input=_input(machine, amount, payloads), given=_given(machine, amount),
        values={"operations": [one.told() for one in judged]}, tables=tables,
        meaning=[sentence for one in judged for sentence in meaning(one)],
    )  # fmt: skip
    return give(answer, output_format, html=html, png=png)


def _operations(text: str) -> list[str]:
    asked = [part.strip().replace("-", "_") for part in text.split(",")]
    if asked == [_ALL]:
        return list(ALGORITHMS)
    unknown = [name for name in asked if name not in ALGORITHMS]
    if unknown:
        raise ConfigError(f"--op {unknown[0]!r} is none of {', '.join(ALGORITHMS)}, {_ALL}")
    return asked


def _machine(
    ranks: str, per_node: str, bandwidth: str, latency: str, near: str | None, near_s: str | None
) -> Machine:
    count = units.group_of(units.parse_count(ranks, "--ranks", unit="ranks"), "--ranks")
    local = units.parse_count(per_node, "--ranks-per-node", unit="ranks")
    read_s = partial(units.parse_duration_s, zero=True)
    link = Link(
        alpha_s=read_s(latency, "--latency"),
        bytes_per_s=units.parse_bandwidth(bandwidth, "--bandwidth"),
    )
    if local == 1:
        if near is not None or near_s is not None:
            given = "--node-latency" if near is None else "--node-bandwidth"
            raise ConfigError(
                f"{given} is given, but --ranks-per-node is 1: give how many ranks a node has, 8"
            )
        return Machine(ranks=count, link=link)
    if near is None:
        raise ConfigError(
            f"--ranks-per-node is {local}: give --node-bandwidth as well, such as 450GB/s"
        )
    if count % local and count > local:
        raise ConfigError(f"--ranks {count} is no multiple of --ranks-per-node {local}: give one")
    inside = Link(
        alpha_s=link.alpha_s if near_s is None else read_s(near_s, "--node-latency"),
        bytes_per_s=units.parse_bandwidth(near, "--node-bandwidth"),
    )
    return Machine(ranks=count, link=link, ranks_per_node=local, inside=inside)


def _input(machine: Machine, servers: int, payloads: list[int]) -> dict[str, object]:
    near = machine.inside
    return {
        "ranks": machine.ranks,
        "bytes_per_s": machine.link.bytes_per_s,
        "alpha_s": machine.link.alpha_s,
        "ranks_per_node": machine.local,
        "node_bytes_per_s": None if near is None else near.bytes_per_s,
        "node_alpha_s": None if near is None else near.alpha_s,
        "servers": servers,
        "bytes": payloads,
    }


def _given(machine: Machine, servers: int) -> list[str]:
    if machine.inside is None:
        lines = [f"{machine.ranks:,} ranks, {_link('out of each', machine.link)}"]
    else:
        node = counted(machine.nodes, "node")
        lines = [
            f"{machine.ranks:,} ranks on {node}, {machine.local:,} each",
            _link("out of a rank to its node", machine.inside),
        ]
        if machine.nodes > 1:
            lines.append(_link("out of a rank to other nodes", machine.link))
            if machine.link.bytes_per_s > machine.inside.bytes_per_s:
                lines.append("inside a node is slower than between nodes: are they swapped?")
    if servers > 1:
        lines.append(f"central servers: {servers:,}, each with the ranks' link")
    return lines


def _link(where: str, link: Link) -> str:
    alpha = f"{duration_of(link.alpha_s)} a message" if link.alpha_s else "messages cost no time"
    return f"{where} {bandwidth_of(link.bytes_per_s)}, {alpha}"
