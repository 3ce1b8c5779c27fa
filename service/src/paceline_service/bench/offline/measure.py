"""``paceline bench offline``: whole commands of several tools over the same traces."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paceline
import paceline_service
from paceline.errors import InputError
from paceline_service.bench.offline.peers import Peers, install, version_of
from paceline_service.bench.offline.process import Done, run
from paceline_service.bench.offline.traces import Job, write_traces
from paceline_service.bench.pairs import ratio, shuffled_rounds

WORK = Path("build/offline")
SHARED_ENV = "PACELINE_SHARED_DATA"
OWN = "Paceline"
_DRIVERS = Path(__file__).with_name("drivers")
_DLRM, _WHAT_IF = "kineto_dlrm_8rank_v100", "straggler_analysis_ST"
_RANK_REGEX = r"(?:rank|worker)(\d+)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A command; ``told`` makes of its output what it says, for the result."""

    command: Sequence[str]
    told: Callable[[str], Mapping[str, Any]]
    version: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def measure(*, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Return for each set of traces what each tool took and said."""
    _compile_own()
    say("installing the other tools ...")
    peers = install(WORK)
    rounds = 3 if quick else 9
    workloads: dict[str, Any] = {}
    for name, tools in _workloads(peers, say):
        say(f"{name} ...")
        workloads[name] = _compare(tools, rounds, say)
    return {"rounds": rounds, "skipped": peers.skipped, "workloads": workloads}


def _compile_own() -> None:
    """Compile Paceline to byte code, as pip does: a checkout need not have any."""
    for package in (paceline, paceline_service):
        compileall.compile_dir(Path(str(package.__file__)).parent, quiet=2)


def _workloads(
    peers: Peers, say: Callable[[str], None]
) -> list[tuple[str, dict[str, Tool]]]:  # fmt: skip
    job = Job()
    generated = WORK / "generated"
    shutil.rmtree(generated, ignore_errors=True)
    say("making traces ...")
    write_traces(generated, job)
    found = [(f"{job.ranks} x {job.events:,} events, rank {job.slow_rank} slow",
              _trace_tools(generated, peers))]  # fmt: skip
    shared = Path(os.environ.get(SHARED_ENV) or "../shared/data")
    if (shared / _DLRM).is_dir():
        place = WORK / "dlrm"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for path in (shared / _DLRM).glob("*.json.gz"):
            shutil.copy(path, place)
        found.append(("DLRM on 8 V100, one step", _trace_tools(place, peers)))
    else:
        peers.skipped["DLRM"] = f"no {shared / _DLRM}: {SHARED_ENV} names the directory of it"
    if (shared / _WHAT_IF).is_dir():
        found.append(("ST, what-if", _what_if_tools(shared / _WHAT_IF, peers)))
    else:
        peers.skipped["ST"] = f"no {shared / _WHAT_IF}: {SHARED_ENV} names the directory of it"
    return found


def _trace_tools(traces: Path, peers: Peers) -> dict[str, Tool]:
    tools = {OWN: Tool(command=[*_own(), str(traces), "--format", "json"], told=_own_word)}
    if peers.python is None:
        return tools
    python = str(peers.python)
    tools["HTA"] = Tool(
        command=[python, str(_DRIVERS / "run_hta.py"), str(traces)],
        told=_last_json,
        version=version_of("HolisticTraceAnalysis", peers.python),
    )
    if peers.tracelens is not None:
        out = WORK / "tracelens"
        tools["TraceLens"] = Tool(
            command=[
                python, "-m", "TraceLens.Reporting.generate_multi_rank_collective_report_pytorch",
                "--trace_glob", f"{traces}/*.json*", "--rank_regex", _RANK_REGEX,
                "--world_size", "8", "--output_csvs_dir", str(out),
            ],
            told=lambda _: _first_straggler(out / "straggler_summary.csv"),
            environment={"PYTHONPATH": str(peers.tracelens)},
        )  # fmt: skip
    return tools


def _what_if_tools(directory: Path, peers: Peers) -> dict[str, Tool]:
    trace = directory / "trace-ST.parquet"
    tools = {OWN: Tool(command=[*_own(), str(trace), "--format", "json"], told=_own_figures)}
    if peers.python is not None and peers.what_if is not None:
        out = WORK / "what-if"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        meta = directory / "meta-ST.yaml"
        tools["StragglerAnalysis"] = Tool(
            command=[
                str(peers.python), str(_DRIVERS / "run_what_if.py"), str(peers.what_if), str(meta),
                str(trace), str(out),
            ],
            told=_last_json,
        )  # fmt: skip
    return tools


def _own() -> list[str]:
    return [str(Path(sys.executable).with_name("paceline")), "analyze"]


def _compare(tools: Mapping[str, Tool], rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    usable: dict[str, Tool] = {}
    for name, tool in tools.items():
        try:
            # Watched for its memory, and not timed: it also fills the caches of files.
            done = run(tool.command, tool.environment, watch=True)
        except InputError as error:
            found[name] = {"version": tool.version, "failed": str(error)}
            say(f"  {name} failed: {error}")
            continue
        usable[name] = tool
        found[name] = {"version": tool.version, "pss_mib": round(done.pss_mib, 1),
                       "says": dict(tool.told(done.output))}  # fmt: skip
    runs: dict[str, list[Done]] = {name: [] for name in usable}
    for order in shuffled_rounds(list(usable), rounds, seed=7):
        for name in order:
            runs[name].append(run(usable[name].command, usable[name].environment))
    for name, done_runs in runs.items():
        seconds = [done.seconds for done in done_runs]
        found[name]["seconds"] = [round(value, 4) for value in seconds]
        found[name]["cpu_s"] = [round(done.cpu_s, 3) for done in done_runs]
        if name != OWN and OWN in runs:
            own = [done.seconds for done in runs[OWN]]
            found[name]["times_as_long"] = ratio(seconds, own).to_dict()
            found[name]["times_as_large"] = round(
                found[name]["pss_mib"] / max(found[OWN]["pss_mib"], 0.1), 2
            )
    return found


def _own_word(output: str) -> dict[str, Any]:
    report = json.loads(output)
    last = report["data"]["trace"]["last_arrivers"]
    return {
        "verdict": report["verdict"],
        "ranks": [rank for finding in report["findings"] for rank in finding["ranks"]],
        "most_waits_by": last[0]["rank"] if last else None,
    }


def _own_figures(output: str) -> dict[str, Any]:
    figures = json.loads(output)["what_if"]
    return {"S": figures["slowdown"], "M_S": figures["m_s"], "M_W": figures["m_w"]}


def _last_json(output: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return found


def _first_straggler(table: Path) -> dict[str, Any]:
    """Return the rank of the first row, which its documentation calls the straggler."""
    lines = table.read_text(encoding="utf-8").splitlines()
    return {"ranks": [int(lines[1].partition(",")[0])]} if len(lines) > 1 else {"ranks": []}
