"""The plugin in wheels, source archives and editable installations, with a compiler and without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from paceline.plugin import BuildError, build, load, sources
from paceline.plugin import compile as compiling
from tests.conftest import ROOT

PLUGIN = "paceline/plugin"


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """Return a copy of the agent's project, without what was compiled into it."""
    copy = tmp_path / "agent"
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "agent", copy, ignore=ignored)
    return copy


def hatch(agent: Path, target: str, **env: str) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", "out"],
        cwd=agent,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (made,) = (agent / "out").iterdir()
    return made


def needs_compiler() -> str:
    found = compiling.compiler(os.environ)
    if found is None:
        pytest.skip("no C compiler: install gcc or clang, or set CC")
    return found


def test_wheel_brings_the_library_and_is_of_one_platform(agent: Path) -> None:
    needs_compiler()
    wheel = hatch(agent, "wheel")
    assert wheel.name.startswith("paceline-0.1.0-py3-none-linux_")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        library = archive.read(f"{PLUGIN}/{compiling.LIBRARY}")
    assert compiling.MARK + compiling.source_hash().encode() in library
    assert f"{PLUGIN}/ring.c" in names  # for `paceline doctor --build`
    assert "paceline_inject.pth" in names


def test_wheel_leaves_nothing_behind(agent: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    hatch(agent, "wheel", TMPDIR=str(scratch))
    assert list(scratch.iterdir()) == []


def test_wheel_made_without_a_compiler_is_whole_but_for_the_library(agent: Path) -> None:
    wheel = hatch(agent, "wheel", PATH="/nowhere", CC="")
    assert wheel.name == "paceline-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        assert f"{PLUGIN}/{compiling.LIBRARY}" not in archive.namelist()


def test_compiler_that_fails_does_not_fail_the_wheel(agent: Path) -> None:
    wheel = hatch(agent, "wheel", CC="false")
    assert wheel.name == "paceline-0.1.0-py3-none-any.whl"


def test_source_archive_brings_the_sources(agent: Path) -> None:
    with tarfile.open(hatch(agent, "sdist")) as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert {path.name for path in sources()} <= names
    assert {"abi.h", "ring.h", "hatch_build.py", "compile.py"} <= names


def test_editable_wheel_compiles_beside_the_sources(agent: Path) -> None:
    needs_compiler()
    code = "from hatchling.build import build_editable; build_editable('out')"
    (agent / "out").mkdir()
    subprocess.run([sys.executable, "-c", code], cwd=agent, check=True, capture_output=True)
    assert (agent / "src" / PLUGIN / compiling.LIBRARY).is_file()


@pytest.fixture
def installed(agent: Path, tmp_path: Path) -> dict[str, str]:
    """Return an environment that imports a copy of the package which was never compiled."""
    return {
        **os.environ,
        "PYTHONPATH": str(agent / "src"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }


def python(code: str, env: dict[str, str]) -> str:
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_library_is_built_once_into_the_cache_and_found_there(
    installed: dict[str, str], tmp_path: Path
) -> None:
    needs_compiler()
    where = "from paceline.plugin import library_path; print(library_path())"
    assert python(where, installed) == "None"
    made = Path(python("from paceline.plugin import build; print(build())", installed))
    assert made.is_relative_to(tmp_path / "cache" / "paceline")
    assert made.parent.stat().st_mode & 0o077 == 0
    first = made.stat().st_mtime_ns
    assert python("from paceline.plugin import build; print(build())", installed) == str(made)
    assert made.stat().st_mtime_ns == first
    assert python(where, installed) == str(made)
    made.parent.chmod(0o777)  # anybody could have put another one there
    assert python(where, installed) == "None"


def test_cache_is_made_private_whatever_the_umask(
    installed: dict[str, str], tmp_path: Path
) -> None:
    needs_compiler()
    code = "import os; os.umask(0o002); from paceline.plugin import build; print(build())"
    made = Path(python(code, installed))
    assert {part.stat().st_mode & 0o077 for part in made.parents if tmp_path in part.parents} == {0}


def test_cache_of_another_kind_of_machine_is_not_looked_into(
    installed: dict[str, str],
) -> None:
    needs_compiler()
    python("from paceline.plugin import build; print(build())", installed)
    where = (
        "import os; me = os.uname(); os.uname = lambda: type(me)((*me[:4], 'aarch65'));"
        "from paceline.plugin import library_path; print(library_path())"
    )
    assert python(where, installed) == "None"


def test_user_without_a_home_has_no_plugin_and_hears_what_to_set(
    installed: dict[str, str],
) -> None:
    needs_compiler()
    nobody = (
        "import os, pwd; os.environ.pop('HOME', None); del os.environ['XDG_CACHE_HOME']\n"
        "def unknown(uid): raise KeyError(uid)\n"
        "pwd.getpwuid = unknown\n"
        "def refuse(*_, **__): raise PermissionError('no')\n"
        "import pathlib; pathlib.Path.mkdir = refuse\n"
        "from paceline.plugin import BuildError, build, library_path\n"
        "print(library_path())\n"
        "try: build()\n"
        "except BuildError as error: print(error)\n"
    )
    path, problem = python(nobody, installed).splitlines()
    assert path == "None"
    assert "set XDG_CACHE_HOME" in problem


def test_library_of_other_sources_is_not_used(installed: dict[str, str], agent: Path) -> None:
    compile_with = needs_compiler()
    beside = agent / "src" / PLUGIN / compiling.LIBRARY
    assert compiling.compile_library(compile_with, beside) == ""
    where = "from paceline.plugin import library_path; print(library_path())"
    assert python(where, installed) == str(beside)
    with open(agent / "src" / PLUGIN / "ring.c", "a") as file:
        file.write("\n")
    assert python(where, installed) == "None"


def test_doctor_warns_of_a_library_that_cannot_be_loaded_here(
    installed: dict[str, str], agent: Path
) -> None:
    # As one that was made where the C library is newer: NCCL goes on without, and says nothing.
    mark = compiling.MARK + compiling.source_hash().encode()
    (agent / "src" / PLUGIN / compiling.LIBRARY).write_bytes(b"no library" + mark)
    code = (
        "from paceline.doctor.built import plugin_check; one = plugin_check();"
        "print(one.status, one.found, one.remedy)"
    )
    found = python(code, installed)
    assert found.startswith("warn")
    assert "cannot be loaded" in found
    assert "--no-cache-dir" in found


def test_missing_compiler_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("paceline.plugin.library.library_path", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(BuildError, match=r"no C compiler .* or set CC"):
        build()


def test_cache_that_cannot_be_written_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs_compiler()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("paceline.plugin.library.library_path", lambda: None)
    with pytest.raises(BuildError, match="set XDG_CACHE_HOME"):
        build()


def test_plugin_is_asked_only_where_nccl_loads_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs_compiler()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = build()
    monkeypatch.delenv("NCCL_PROFILER_PLUGIN", raising=False)
    assert load() is None
    monkeypatch.setenv("NCCL_PROFILER_PLUGIN", "another")
    assert load() is None
    monkeypatch.setenv("NCCL_PROFILER_PLUGIN", str(made))
    library = load()
    assert library is not None
    assert library.paceline_active() == 0


def test_module_prints_where_the_plugin_is(installed: dict[str, str]) -> None:
    command = [sys.executable, "-m", "paceline.plugin"]
    done = subprocess.run(command, env=installed, capture_output=True, text=True)
    assert done.returncode == 1
    assert "paceline doctor --build" in done.stderr
    if compiling.compiler(os.environ):
        made = python("from paceline.plugin import build; print(build())", installed)
        done = subprocess.run(command, env=installed, capture_output=True, text=True)
        assert (done.returncode, done.stdout.strip()) == (0, made)
