from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from paceline.errors import InputError
from paceline_service.importers.sources import analyze_paths
from tests.unit.importers.timing_texts import Answer, Job, megatron, named, report_of


@pytest.fixture
def answer(tmp_path: Path) -> Answer:
    """Return the report on logs, written into one directory."""
    return partial(report_of, tmp_path)


# As launchers and terminals write them

LABELS: dict[str, Callable[[str], str]] = {
    "torchrun": lambda line: f"[rank7]:{line}",
    "torchrun --tee": lambda line: f"[default7]:{line}",
    "srun -l": lambda line: f" 7: {line}",
    "pdsh": lambda line: f"node-07: {line}",
    "kubectl": lambda line: f"2025-01-01T00:00:00.123456789Z [rank7]: {line}",
    "colours": lambda line: f"\x1b[32m{line}\x1b[0m",
    "windows": lambda line: f"{line}\r",
    "logging": lambda line: f"INFO:megatron.core.timers:{line}" if "across" in line else line,
}


@pytest.mark.parametrize("launcher", LABELS)
def test_labels_of_launchers_do_not_matter(launcher: str, answer: Answer) -> None:
    lines = megatron(Job(all_slow=1.2, from_iteration=300), "minmax")
    report = answer([LABELS[launcher](line) for line in lines])
    assert report["verdict"] == "uniform_slowdown"
    assert report["job"]["world_size"] == 8


def test_lines_of_other_ranks_may_come_between(answer: Answer) -> None:
    rng = random.Random(5)
    lines = []
    for line in megatron(Job(slow={5: 1.3}, iterations=300), "all"):
        lines.append(f"7: \x1b[32m{line}\x1b[0m\r")
        for _ in range(rng.randint(0, 2)):
            other = rng.randint(0, 6)
            lines.append(f"{other}: [Rank {other}] (after 20 iterations) memory (MB) | max: 2.0")
    assert named(answer(lines))[1] == [5]


def test_a_statement_may_follow_other_output_on_its_line(answer: Answer) -> None:
    lines = megatron(Job(iterations=300), "none")
    report = answer(["max reserved: 23974.0" + line if "iteration" in line else line
                     for line in lines])  # fmt: skip
    assert report["data"]["timings"]["reports"] == 30


# Files


def test_a_log_is_recognised_however_late_its_times_come(tmp_path: Path) -> None:
    path = tmp_path / "slurm-12.out"
    lines = ["downloading ... 12%"] * 20_000 + megatron(Job(iterations=200), "one")
    path.write_text("\n".join(lines))
    assert analyze_paths([path]).report["data"]["timings"]["reports"] == 20


def test_a_packed_log_that_breaks_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "train.log.gz"
    packed = gzip.compress("\n".join(megatron(Job(iterations=2000), "minmax")).encode())
    path.write_bytes(packed[: len(packed) * 2 // 3])
    report = analyze_paths([path]).report
    assert 50 < report["data"]["timings"]["reports"] < 200
    assert report["data"]["dropped"] == {"truncated_file": 1}


def test_logs_of_several_jobs_are_refused_by_name(tmp_path: Path) -> None:
    for ranks in (8, 16):
        text = "\n".join(megatron(Job(ranks=ranks, iterations=100), "one"))
        (tmp_path / f"{ranks} ranks.out").write_text(text)
    with pytest.raises(InputError, match=r"world_size is 8 in .*8 ranks\.out and 16 in "):
        analyze_paths([tmp_path])


def test_logs_of_attempts_follow_each_other_by_the_numbers_in_their_names(tmp_path: Path) -> None:
    for number, iterations in ((99, 100), (100, 200)):
        text = "\n".join(megatron(Job(iterations=iterations, seed=number), "one"))
        (tmp_path / f"slurm-{number}.out").write_text(text)
    report = analyze_paths([tmp_path]).report
    attempts = report["data"]["timings"]["attempts"]
    assert [attempt["last"] for attempt in attempts] == [100, 200]


def test_a_manual_that_names_the_statements_is_no_log(tmp_path: Path) -> None:
    manual = tmp_path / "README.md"
    manual.write_text(
        "| op | time (ms) | elapsed time per iteration (ms) |\n"
        "log_string += ' elapsed time per iteration (ms): {:.1f} |'\n"
    )
    (tmp_path / "train.out").write_text("\n".join(megatron(Job(iterations=100), "one")))
    report = analyze_paths([tmp_path]).report
    assert report["data"]["timings"]["reports"] == 10
    assert "left out, of no known format: README.md" in "\n".join(report["data"]["notes"])


def test_the_same_log_given_twice_counts_once(answer: Answer) -> None:
    lines = megatron(Job(iterations=200), "one")
    assert len(answer(lines, lines)["data"]["timings"]["attempts"]) == 1


@pytest.mark.parametrize(
    "hostile",
    [
        "time (ms) | " + "a: 1.0 | " * 200_000,
        "times across ranks (ms):\n  x:\n" + "     rank 999999999: 1.0\n" * 10,
        " iteration 1/1 | elapsed time per iteration (ms): 1e999 |",
        " iteration 99999999999/1 | elapsed time per iteration (ms): 1 |",
        "MnRtt/Rnk: 1ms/99999999 | MxRtt/Rnk: nan/1",
        "\x1b[" * 10_000 + "time (ms) | fwd: 1 | bwd: 1 | step: 1",
        "rank=99999999 time (ms) | fwd: 1.0 | bwd: 1.0 | step: 1.0",
    ],
)
def test_no_line_is_too_strange_to_be_read(hostile: str, answer: Answer) -> None:
    lines = megatron(Job(iterations=200), "minmax")
    report = answer([*lines, hostile, *megatron(Job(iterations=100), "minmax")])
    assert report["data"]["timings"]["attempts"][0]["reports"] == 20
    json.dumps(report, allow_nan=False)
