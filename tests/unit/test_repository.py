from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

from paceline_service.settings import CollectorSettings
from tests.conftest import ROOT

MAX_LINES = 400
SOURCE_ENDINGS = (".py", ".c", ".h", ".js", ".css", ".sh")
DISTRIBUTIONS = ("agent", "service", "dashboards")

# Written in halves: this file must not hold what it looks for.
FORBIDDEN = re.compile(
    r"(^|[^A-Za-z0-9_.])/(wo" + r"rk|fa" + r"rm)/"
    r"|files\.python" + r"hosted\.org|pypi\.org/" + r"simple|deb\.deb" + r"ian\.org"
    r"|registry\.npm" + r"js\.org|/opt/(whe" + r"els|py" + r"pi)"
)
TORCH_HOST = "download.pytorch" + ".org"


@cache
def tracked_files() -> tuple[Path, ...]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    paths = [ROOT / name for name in done.stdout.decode().split("\0") if name]
    return tuple(path for path in paths if path.is_file())


def is_vendored(path: Path) -> bool:
    return bool({"vendor", "golden"} & set(path.parts))


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def test_no_source_file_has_more_than_400_lines() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in tracked_files()
        if path.suffix in SOURCE_ENDINGS and not is_vendored(path)
        if (lines := text_of(path).count("\n")) > MAX_LINES
    }
    assert not long


def test_no_file_names_a_path_of_one_machine_or_a_registry_host() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()[:80]}"
        for path in tracked_files()
        if not is_vendored(path)
        for line in text_of(path).splitlines()
        if FORBIDDEN.search(line)
    ]
    assert not found


def test_only_the_bootstrap_names_a_package_host() -> None:
    naming = {
        str(path.relative_to(ROOT)) for path in tracked_files() if TORCH_HOST in text_of(path)
    }
    assert naming <= {"tools/install.py"}


def test_every_page_of_the_documentation_is_linked_from_its_index() -> None:
    docs = ROOT / "docs"
    linked: set[Path] = set()
    todo = [docs / "README.md"]
    while todo:  # an index page of a directory may link its own pages
        page = todo.pop()
        if page in linked or not page.is_file():
            continue
        linked.add(page)
        if page.name == "README.md":
            targets = re.findall(r"\]\(([^)#:]+\.md)", text_of(page))
            todo.extend((page.parent / target).resolve() for target in targets)
    unlinked = {str(page.relative_to(ROOT)) for page in docs.rglob("*.md")} - {
        str(page.relative_to(ROOT)) for page in linked if page.is_relative_to(ROOT)
    }
    assert not unlinked


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in tracked_files():
        if page.suffix != ".md":
            continue
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text_of(page)):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} -> {target}")
    assert not broken


def variables_read_by_the_source() -> set[str]:
    """Every PACELINE_ name in a string of the sources, and those made from the settings."""
    names: set[str] = set()
    for distribution in DISTRIBUTIONS:
        for path in (ROOT / distribution).rglob("*.py"):
            names.update(re.findall(r"PACELINE_[A-Z0-9_]*[A-Z0-9]\b", text_of(path)))
    names.update(
        f"PACELINE_SERVE_{name.upper()}"
        for name, field in CollectorSettings.model_fields.items()
        if field.validation_alias is None
    )
    return names


def test_every_environment_variable_is_documented() -> None:
    documented = text_of(ROOT / "docs/configuration.md")
    missing = {
        name for name in variables_read_by_the_source() if not re.search(rf"\b{name}\b", documented)
    }
    assert not missing


def test_changelog_has_a_heading_for_what_is_unreleased() -> None:
    assert "## Unreleased" in text_of(ROOT / "CHANGELOG.md")


def test_decision_records_have_numbers_of_their_own() -> None:
    numbers = [path.name[:4] for path in (ROOT / "docs/adr").glob("[0-9]*.md")]
    assert len(numbers) == len(set(numbers))


def test_papers_are_cited_in_words_as_nobody_here_looks_up_the_numbers_of_sections() -> None:
    pages = [path for path in tracked_files() if path.parent == ROOT / "docs" / "math"]
    cited = re.compile(r"(\w+),?\s+sections? [0-9]")
    numbered = [
        f"{path.name}: {match[0]}"
        for path in pages
        for match in cited.finditer(path.read_text(encoding="utf-8"))
        if match[1] != "DETECTION"
    ]
    assert len(pages) > 20
    assert numbered == []


def test_readme_leads_to_the_line_that_decides_who_is_slow() -> None:
    links = re.findall(r"\]\(([^)#]*analysis[^)#]*)", text_of(ROOT / "README.md"))
    assert links
