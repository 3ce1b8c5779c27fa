"""Takes the pictures of the page for the documentation, from seeded jobs at a fixed hour.

``python -m tests.e2e.page.screenshots docs/img`` writes ``page-*.png``; other names may follow, to
take only those pictures.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.page.conftest import ARGUMENTS, CHROMIUM
from tests.e2e.page.page_jobs import HANG, STEP_NS, PageJob
from tests.e2e.page.page_server import PageServer

NOW_S = 1_795_230_720
"""Three in the morning of some day, UTC."""
WIDTH = 1280
DRAWN = "document.querySelector('.sawtooth .lanes canvas')?.dataset.teeth > 0"
LOADED = f"""{DRAWN} && document.querySelector('.timeline .lanes canvas')?.dataset.ordered > 0
  && !document.querySelector('#timeline').textContent.includes('loading')
  && document.querySelector('#incidents').textContent.includes('open')"""
SETTLED_MS = 1_500
PATIENCE_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One picture: an address, a window, and what of it is shown."""

    address: str
    width: int = WIDTH
    height: int = 860
    scheme: str = "light"
    shows: str = ""
    """A selector of the last part that is in the picture; else the window is."""
    begins: str = ""
    """A selector of the first part."""
    waits_for: str = DRAWN


JOB, BIG = "/#/jobs/llm-7b", "/#/jobs/llm-70b"
PICTURES = {
    "page-straggler": Picture(address=JOB),
    "page-dark": Picture(address=JOB, scheme="dark"),
    "page-1024-ranks": Picture(address=BIG, height=1500, waits_for=LOADED),
    "page-timeline": Picture(address=JOB, begins="#timeline", shows="#timeline"),
    "page-jobs": Picture(address="/", height=640, waits_for="document.querySelector('.job-list')"),
    "page-incident": Picture(
        address="/#/incidents/31", height=700, waits_for="document.querySelector('.incident')"
    ),
    "page-incidents": Picture(address=JOB, begins="#incidents", shows="#incidents"),
    "page-expected": Picture(address=JOB, begins="#expected", shows="#expected"),
    "page-cost": Picture(address=f"{BIG}?without=node:node-042", begins="#cost", shows="#gamma"),
    "page-agents": Picture(address=BIG, begins="#agents", shows="#trace"),
    "page-offenders": Picture(
        address="/#/offenders", height=330, waits_for="document.querySelector('tbody tr')"
    ),
    "page-hang": Picture(address="/#/jobs/vision", height=1300),
    "page-healthy": Picture(address="/#/jobs/healthy-8", height=700),
    "page-insufficient": Picture(address="/#/jobs/young", height=700),
    "page-narrow": Picture(address=JOB, width=390, height=844),
    "page-empty": Picture(address="/", height=480, waits_for="document.querySelector('.empty')"),
}
KEPT = (
    "page-straggler", "page-dark", "page-1024-ranks", "page-timeline", "page-jobs", "page-incident",
    "page-expected", "page-cost", "page-agents", "page-hang",
)  # fmt: skip
"""Those that the documentation shows; the others are for whoever changes the page to look at."""


def jobs() -> list[PageJob]:
    """Return the jobs of the pictures."""
    node_42, second_ns = tuple(range(336, 344)), 10**9
    said = {
        "at_wall_ns": (NOW_S - 60) * second_ns, "by": "ana",
        "note": "node-042 is being drained, see the ticket", "withdrawn_wall_ns": None,
        "withdrawn_by": "",
    }  # fmt: skip
    found = [
        PageJob("llm-7b", ranks=4, steps=140, slow_ranks=(2,), seed=1),
        PageJob("healthy-8", ranks=8, steps=320, seed=2),
        PageJob("vision", ranks=8, ranks_per_node=4, steps=240, seed=6, finding=HANG,
                pending_s=187.0),
        PageJob("llm-70b", ranks=1024, steps=1400, slow_ranks=node_42, slow_phase="forward",
                slow_ratio=0.5, slow_from=330, seed=3, dropped={"ring_overwritten": 1289},
                silent_ranks=(700,), earlier_incidents=3,
                incident={"acknowledged": said}),
        PageJob("young", ranks=4, steps=6, seed=4, state="silent", missing_ranks=(3,)),
        PageJob("finished", ranks=8, steps=900, slow_ranks=(5,), slow_phase="input",
                slow_ratio=9.0, slow_from=600, seed=5, state="ended"),
    ]  # fmt: skip
    for job in found:
        job.started_wall_ns = NOW_S * second_ns - job.steps * STEP_NS - second_ns
    return found


def take(browser: Any, url: str, name: str, picture: Picture, directory: Path) -> None:
    """Write one picture."""
    size = {"width": picture.width, "height": picture.height}
    window = browser.new_context(
        viewport=size, color_scheme=picture.scheme, timezone_id="UTC", reduced_motion="reduce"
    )
    page = window.new_page()
    page.clock.set_fixed_time(NOW_S)
    page.goto(url + picture.address)
    deadline_s = time.monotonic() + PATIENCE_S
    while not page.evaluate(picture.waits_for):
        if time.monotonic() > deadline_s:
            raise SystemExit(f"{name}: not true in {PATIENCE_S} s: {picture.waits_for}")
        page.wait_for_timeout(100)
    page.wait_for_timeout(SETTLED_MS)
    path, clip = directory / f"{name}.png", None
    if picture.shows:
        boxes = [page.locator(part).bounding_box() for part in (picture.begins, picture.shows)]
        top, bottom = boxes[0]["y"] - 10, boxes[1]["y"] + boxes[1]["height"] + 10
        clip = {"x": 0, "y": top, "width": picture.width, "height": bottom - top}
    page.screenshot(path=path, clip=clip, full_page=clip is not None)
    window.close()
    print(path, flush=True)


def main(arguments: list[str]) -> None:
    """Take the pictures that the documentation shows, or those that are named."""
    from playwright.sync_api import sync_playwright

    directory = Path(arguments[0])
    names = arguments[1:] or list(KEPT)
    full, empty = PageServer(jobs()), PageServer([])
    for server in (full, empty):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        for name in names:
            server = empty if name == "page-empty" else full
            take(browser, server.url, name, PICTURES[name], directory)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
