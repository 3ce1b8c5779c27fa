from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.errors import ConfigError, RingError
from paceline.ring import RingWriter, new_identity, private
from paceline.sidecar.main import main


@pytest.fixture
def default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "paceline-me"
    monkeypatch.setattr(private, "default_runtime_dir", lambda: directory)
    return directory


def make_ring(directory: Path) -> None:
    identity = new_identity(
        job="j", run_id="r", attempt=0, rank=0, local_rank=0, world_size=1, node="n",
        boot_id="b", time_namespace=1, producer="test",
    )  # fmt: skip
    RingWriter(directory, identity).close()


def test_own_directory_is_used(default: Path) -> None:
    make_ring(default)
    assert len(list(default.glob("*.ring"))) == 1


def test_default_directory_that_others_can_write_is_refused(default: Path) -> None:
    default.mkdir()
    default.chmod(0o777)
    with pytest.raises(RingError, match=r"written by others \(mode 777\).*PACELINE_RUNTIME_DIR"):
        make_ring(default)
    assert main(["--runtime-dir", str(default), "--url", "http://127.0.0.1:1"]) == 2


def test_link_in_its_place_is_refused(default: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    default.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is no directory"):
        private.check_private(default)


def test_directory_of_another_user_is_refused(
    default: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ConfigError, match="belongs to user"):
        private.check_private(default)


def test_directory_that_was_named_is_not_judged(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    make_ring(shared)


def test_default_directory_is_made_private_whatever_the_umask(default: Path) -> None:
    before = os.umask(0o002)
    try:
        private.make_private(default / "run-1")
    finally:
        os.umask(before)
    assert default.stat().st_mode & 0o777 == 0o700
    make_ring(default)


def test_directory_within_a_default_one_that_others_can_write_is_refused(default: Path) -> None:
    default.mkdir()
    default.chmod(0o777)
    with pytest.raises(RingError, match=rf"{default} can be written by others"):
        make_ring(default / "run-1")
