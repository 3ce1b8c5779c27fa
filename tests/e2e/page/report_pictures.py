"""Makes the pictures of ``paceline top`` and of the HTML report for the documentation.

Run ``python -m tests.e2e.page.report_pictures``: a real collector analyses a simulated job.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console

from paceline.vocabulary import Phase
from paceline_service.commands.top import _ask
from paceline_service.top.screen import Look, picture
from tests.e2e.page.conftest import ARGUMENTS, CHROMIUM
from tests.integration.collector.kit import (
    CollectorProcess,
    bodies,
    post_all,
    senders,
    wait_until,
)
from tests.simulator.job import Fault, Scenario, simulate
from tests.unit.importers.logs import write_simulated

PICTURES = Path(__file__).resolve().parents[3] / "docs" / "img"
COLUMNS, LINES = 100, 28


def main() -> None:
    """Write docs/img/top.svg, docs/img/report-html.png and docs/img/compare-html.png."""
    fault = Fault(rank=5, phase=Phase.BACKWARD, extra_ms=14, first=90)
    job = simulate(Scenario(data_parallel=8, steps=160, faults=(fault,), seed=3))
    with tempfile.TemporaryDirectory() as directory:
        collector = CollectorProcess(Path(directory) / "state").start()
        try:
            ranks = senders(job, job="llm-7b")
            for sender in ranks:
                sender.node = f"node-{sender.rank // 4}"
            client = collector.client()
            post_all(client, bodies(job, ranks, end=False))
            wait_until(lambda: client.job("llm-7b")["steps"] >= 159, 30)
            save_top(collector)
            save_page(collector, Path(directory) / "report.html")
        finally:
            collector.stop()
        save_comparison(Path(directory))


def save_top(collector: CollectorProcess) -> None:
    """Write the screen of ``paceline top`` as SVG, with the fonts of whoever looks at it."""
    moment = _ask(collector.client(), "llm-7b", None)
    console = Console(width=COLUMNS, force_terminal=True, record=True, file=io.StringIO())
    for line in picture(moment, Look(), COLUMNS, LINES).lines:
        console.print(line, soft_wrap=True)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="paceline top llm-7b"),
                 flags=re.DOTALL)  # fmt: skip
    (PICTURES / "top.svg").write_text(svg.replace(collector.url, "http://127.0.0.1:8750"))


def save_page(collector: CollectorProcess, path: Path) -> None:
    """Write the upper part of the HTML report as PNG."""
    command = [sys.executable, "-m", "paceline", "report", "llm-7b", "--url", collector.url]
    subprocess.run(
        [*command, "-o", str(path)], check=True, env={**os.environ, **collector.environment}
    )
    picture_of(path, "report-html.png", height=1640)


def save_comparison(directory: Path) -> None:
    """Write the page about two runs as PNG; in the second rank 3 is 5 % slower."""
    fault = Fault(rank=3, phase=Phase.BACKWARD, extra_ms=1.9)
    for name, seed, faults in (("monday", 11, ()), ("today", 13, (fault,))):
        (directory / name).mkdir()
        job = simulate(Scenario(data_parallel=8, steps=160, seed=seed, faults=faults))
        nodes = {rank: f"node-{rank // 4}" for rank in range(8)}
        write_simulated(directory / name, job, per_rank=True, nodes=nodes)
    command = [sys.executable, "-m", "paceline", "analyze", "--compare", "monday", "today"]
    subprocess.run([*command, "-o", "compare.html"], check=False, cwd=directory)
    picture_of(directory / "compare.html", "compare-html.png", height=1240)


def picture_of(path: Path, name: str, *, height: int) -> None:
    """Write the upper part of a file as PNG."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1160, "height": height})
        page.goto(path.as_uri())
        page.screenshot(path=str(PICTURES / name))
        browser.close()


if __name__ == "__main__":
    main()
