"""What ``paceline analyze`` writes beside the text: HTML, CSV, Perfetto, and two runs compared."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline.vocabulary import Phase
from paceline_service.cli import analyze
from paceline_service.export.perfetto import KINDS
from tests.fakes.captures import shared_data
from tests.integration.collector.traces import check_trace
from tests.simulator.job import Fault, Scenario, simulate
from tests.unit.export.test_html import EVIL, Reader
from tests.unit.importers.logs import small_job, write, write_simulated
from tests.unit.importers.traces import TraceJob, traces, write_traces

NODES = {rank: f"node-{rank // 2}" for rank in range(4)}


def job(directory: Path, *, seed: int = 1, faults: Sequence[Fault] = (), steps: int = 60) -> Path:
    scenario = Scenario(steps=steps, seed=seed, faults=tuple(faults))
    write_simulated(directory, simulate(scenario), per_rank=True, nodes=NODES)
    return directory


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four ranks of which rank 2 is slow in backward from step 30 on."""
    fault = Fault(rank=2, phase=Phase.BACKWARD, extra_ms=8, first=30)
    return job(tmp_path_factory.mktemp("slow"), faults=[fault])


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return job(tmp_path_factory.mktemp("healthy"), seed=4)


@pytest.fixture(scope="module")
def written(slow: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All files of one call."""
    out = tmp_path_factory.mktemp("out")
    names = ("job.html", "ranks.csv", "job.perfetto.json.gz", "job.json", "job.txt")
    assert analyze([str(slow), *(f"-o{out / name}" for name in names)]) == 1
    assert {path.name for path in out.iterdir()} == set(names)
    return out


def trace(path: Path) -> dict[str, Any]:
    raw = path.read_bytes()
    made = dict(json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw))
    check_trace(made)
    return made


def test_the_page_of_files_draws_what_that_of_a_live_job_draws(written: Path) -> None:
    page = Reader((written / "job.html").read_text())
    assert "Rank 2 on node-1 is slow in backward since step 30" in page.text
    titles = ["How it began: steps 24 to 39", "The last steps: steps 44 to 59", "Step time"]
    titles += ["Who waits", "What leaving them out gives back", "without rank 2", "event log"]
    for title in titles:
        assert title in page.text
    classes = [attributes.get("class") for tag, attributes in page.elements if tag == "svg"]
    assert classes.count("chart sawtooth") == 2
    assert not {tag for tag, _ in page.elements} & {"script", "img", "link", "iframe"}


def test_the_csv_names_the_slow_rank(written: Path) -> None:
    with (written / "ranks.csv").open(newline="") as file:
        rows = list(csv.DictReader(file, strict=True))
    assert [row["finding"] for row in rows] == ["", "", "straggler", ""]
    assert {row["steps"] for row in rows} == {"60"}
    assert float(rows[2]["blamed_wait_ratio"]) > 0.8
    assert [row["node"] for row in rows] == ["node-0", "node-0", "node-1", "node-1"]


def test_the_trace_holds_every_step_and_points_at_the_last_arriver(written: Path) -> None:
    made = trace(written / "job.perfetto.json.gz")
    told = made["otherData"]
    assert (told["first_step"], told["last_step"], told["steps"]) == (0, 59, 60)
    drawn = [event for event in made["traceEvents"] if event["ph"] == "X"]
    assert len([one for one in drawn if one["cat"] == "step"]) == 4 * 60
    waits = [one for one in drawn if one["cat"] == "wait" and one["args"]["step"] >= 30]
    assert sum(one["name"] == "waits for rank 2" for one in waits) > 0.9 * len(waits) > 0
    slow_pid = 3
    arrows = [event for event in made["traceEvents"] if event["ph"] == "s"]
    late = [one for one in arrows if one["ts"] > arrows[len(arrows) * 2 // 3]["ts"]]
    assert {one["pid"] for one in late} == {slow_pid}
    assert [clock["how"] for clock in told["clocks"]] == ["collectives"] * 4


def test_every_file_has_the_form_that_its_name_says(written: Path) -> None:
    assert json.loads((written / "job.json").read_text())["schema"] == "paceline.report/1"
    assert (written / "job.txt").read_text().startswith("Paceline report")


def test_steps_and_ranks_of_a_trace_can_be_chosen(slow: Path, tmp_path: Path) -> None:
    path = tmp_path / "some.trace.json"
    assert analyze([str(slow), "-o", str(path), "--steps", "28-32", "--ranks", "0,2"]) == 1
    made = trace(path)
    steps = {event["args"]["step"] for event in made["traceEvents"] if event["ph"] == "X"}
    assert steps == {28, 29, 30, 31, 32}
    assert {event["pid"] for event in made["traceEvents"]} == {1, 3}
    assert min(event["ts"] for event in made["traceEvents"] if event["ph"] != "M") < 1000


def test_of_a_long_run_the_steps_around_the_finding_are_drawn(
    slow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from paceline_service.commands import analyze_trace

    monkeypatch.setattr(analyze_trace, "MOST_ROWS", 400)
    path = tmp_path / "part.perfetto.json"
    assert analyze([str(slow), "-o", str(path)]) == 1
    told = trace(path)["otherData"]
    assert told["first_step"] <= 30 <= told["last_step"]
    assert 0 < told["steps"] < 30
    assert f"{told['steps']} of 60 steps" in capsys.readouterr().err


def test_the_answer_does_not_depend_on_how_many_slices_are_held_at_a_time(
    slow: Path, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from paceline_service.commands import analyze_trace

    monkeypatch.setattr(analyze_trace, "PART_SLICES", 100)
    path = tmp_path / "parts.perfetto.json"
    assert analyze([str(slow), "-o", str(path)]) == 1
    whole = trace(written / "job.perfetto.json.gz")
    parts = trace(path)

    def shown(made: dict[str, Any]) -> list[tuple[Any, ...]]:
        events = [event for event in made["traceEvents"] if event["ph"] == "X"]
        return sorted((one["ts"], one["dur"], one["pid"], one["name"]) for one in events)

    assert shown(parts) == shown(whole)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--steps", "1-2"],
        ["--ranks", "0"],
        ["--format", "perfetto"],
        ["-o", "x.perfetto.json", "--steps", "9-3"],
        ["-o", "x.perfetto.json", "--steps", "a"],
        ["-o", "x.perfetto.json", "--steps", "5000-5001"],
        ["-o", "x.perfetto.json", "--ranks", "7"],
        ["-o", "x.html", "-o", "x.html"],
        ["-o", "x.html", "-o", "x.csv", "--format", "html"],
        ["--tolerance", "0.1"],
        ["--fail-on", "straggler,lunch"],
        ["--fail-on", ","],
        ["--fail-on", "regression"],
        ["--compare"],
    ],
)
def test_what_makes_no_sense_is_told_in_one_line(
    slow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert analyze([str(slow), *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_names_from_files_are_text_in_every_output(tmp_path: Path) -> None:
    lines = small_job(3, steps=4)
    lines[0] |= {"nodes": {"0": EVIL, "1": "=1+1", "2": "n"}, "job": "x"}
    path = write(tmp_path / "evil.ndjson", lines)
    out = tmp_path / "out"
    out.mkdir()
    names = ("a.html", "a.csv", "a.perfetto.json")
    assert analyze([str(path), *(f"-o{out / name}" for name in names)]) == 3
    page = Reader((out / "a.html").read_text())
    assert not {tag for tag, _ in page.elements} & {"script", "img"}
    assert ",'=1+1," in (out / "a.csv").read_text()
    trace(out / "a.perfetto.json")
    assert analyze(["--compare", str(path), str(path), "-o", str(out / "b.html")]) in (0, 3)
    assert "<script" not in (out / "b.html").read_text()


def test_traces_have_the_same_outputs(tmp_path: Path) -> None:
    directory = tmp_path / "traces"
    directory.mkdir()
    write_traces(directory, traces(TraceJob(slow=1, host_late=True)))
    names = ("a.html", "a.csv", "a.perfetto.json.gz")
    assert analyze([str(directory), *(f"-o{tmp_path / name}" for name in names)]) == 1
    page = Reader((tmp_path / "a.html").read_text())
    assert "What the GPUs did" in page.text
    assert "Rank 1" in page.text
    made = trace(tmp_path / "a.perfetto.json.gz")
    assert {one["cat"] for one in made["traceEvents"] if one["ph"] == "X"} >= {
        "step", "collective", "wait"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kinds", "status"),
    [("any", 1), ("hang,straggler", 1), ("hang, desync", 0), ("insufficient_evidence", 0)],
)
def test_fail_on_takes_several_kinds_and_any(slow: Path, kinds: str, status: int) -> None:
    assert analyze([str(slow), "--fail-on", kinds]) == status


def test_any_is_no_finding_where_there_is_none(healthy: Path) -> None:
    assert analyze([str(healthy), "--fail-on", "any"]) == 0


def test_a_run_with_one_slower_rank_is_told_from_the_one_before(
    healthy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worse = job(tmp_path, seed=9, faults=[Fault(rank=3, phase=Phase.BACKWARD, extra_ms=1.9)])
    assert analyze(["--compare", str(healthy), str(worse), "--format", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "paceline.compare/1"
    assert told["verdict"] == "slower"
    assert told["slower_ranks"] == [3]
    assert told["step"]["low_ratio"] > 0
    assert {one["part"] for one in told["parts"] if one["significant"]} >= {"waiting"}
    assert analyze(["--compare", str(worse), str(healthy), "--fail-on", "regression"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "less: " in shown
    assert "Rank 3 on node-1 takes" in shown


def test_the_same_job_with_another_seed_is_no_difference(
    healthy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = job(tmp_path, seed=21)
    assert analyze(["--compare", str(healthy), str(again)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "No difference that this data could show" in shown
    assert "The smallest one that it could have shown is" in shown


def test_a_run_that_became_slow_half_way_is_slower_because_of_its_finding(
    healthy: Path, slow: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "compare.html"
    arguments = ["--compare", str(healthy), str(slow), "-o", str(page), "--fail-on", "straggler"]
    assert analyze(arguments) == 1
    assert "Findings that came" in Reader(page.read_text()).text
    assert analyze(["--compare", str(slow), str(healthy), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "faster"
    assert [one["ranks"] for one in told["findings"]["went"]] == [[2]]


def test_too_few_steps_to_compare_are_3(tmp_path: Path) -> None:
    short = write(tmp_path / "short.ndjson", small_job(2, steps=3))
    assert analyze(["--compare", str(short), str(short)]) == 3


def test_runs_of_other_sizes_and_formats_are_compared_by_their_steps(
    healthy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_traces(tmp_path, traces(TraceJob(world_size=3, steps=20)))
    assert analyze(["--compare", str(healthy), str(tmp_path), "--format", "json"]) in (0, 1)
    told = json.loads(capsys.readouterr().out)
    assert told["ranks"] == []
    assert any("4 and 3 ranks" in note for note in told["notes"])
    assert any("the formats differ" in note for note in told["notes"])


def test_what_has_no_steps_is_refused_by_name(healthy: Path, tmp_path: Path) -> None:
    dump = {"version": "2.9", "entries": [], "pg_config": {}, "pg_status": {}}
    (tmp_path / "_dump_0").write_text(json.dumps(dump))
    assert analyze(["--compare", str(healthy), str(tmp_path)]) == 2
    assert analyze([str(tmp_path), "-o", str(tmp_path / "x.perfetto.json")]) == 2


def test_public_traces_have_every_output(tmp_path: Path) -> None:
    for name in ("kineto_dlrm_8rank_v100", "straggler_analysis_ST"):
        names = [tmp_path / f"{name}{end}" for end in (".html", ".csv", ".perfetto.json.gz")]
        assert analyze([str(shared_data(name)), *(f"-o{path}" for path in names)]) in (1, 3)
        assert "chart sawtooth" in names[0].read_text()
        assert len(names[1].read_text().splitlines()) == 9
        made = trace(names[2])
        cats = {one["cat"] for one in made["traceEvents"] if one["ph"] == "X"}
        assert cats >= set(KINDS) - {"within phases", "phase"}


def test_a_file_that_cannot_be_written_leaves_nothing_behind(slow: Path, tmp_path: Path) -> None:
    assert analyze([str(slow), "-o", str(tmp_path / "nowhere" / "x.perfetto.json.gz")]) == 2
    assert list(tmp_path.iterdir()) == []
