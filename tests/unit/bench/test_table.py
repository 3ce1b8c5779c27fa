"""The committed results can be printed, and say on what they were measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from paceline_service.bench.command import table_of


@pytest.mark.parametrize("part", ["agent", "ingest", "analysis", "detect"])
def test_a_committed_result_prints_as_a_table_with_its_hardware(
    part: str, repository: Path
) -> None:
    result = json.loads((repository / "bench" / "results" / f"{part}.json").read_text())
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table_of(part, result))
    text = captured.get()
    assert result["machine"]["cpu"] in text
    assert len(text.splitlines()) > 10
    assert result["schema"] == "paceline.bench/1"
    assert not result["quick"]
