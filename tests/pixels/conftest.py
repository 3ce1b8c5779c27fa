"""What drawing dashboards needs: npm packages, a recording, a PostgreSQL of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.postgres import postgres

__all__ = ["postgres"]
WEB = Path(__file__).parent / "web"


@pytest.fixture(scope="session")
def work(repository: Path) -> Path:
    """Where packages and the recording are kept from one run to the next."""
    directory = Path(os.environ.get("PIXELS_DIR", repository / "build/pixels"))
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@pytest.fixture(scope="session")
def packages(work: Path) -> Path:
    """The sources of the drawing page with their npm packages."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is missing: install Node.js 20 or newer")
    web = work / "web"
    web.mkdir(exist_ok=True)
    for source in WEB.iterdir():
        copied = web / source.name
        if not copied.exists() or copied.read_bytes() != source.read_bytes():
            shutil.copy(source, web)
    if not (web / "node_modules").exists():
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--legacy-peer-deps"]
        subprocess.run([npm, "install", *options], cwd=web, check=True)
    return web


@pytest.fixture(scope="session")
def site(packages: Path) -> Path:
    """The drawing page, built anew where its sources have changed."""
    dist = packages / "dist"
    page = dist / "index.html"
    newest = max((packages / source.name).stat().st_mtime for source in WEB.iterdir())
    if not page.exists() or page.stat().st_mtime < newest:
        subprocess.run(["npm", "exec", "--", "vite", "build"], cwd=packages, check=True)
    return dist
