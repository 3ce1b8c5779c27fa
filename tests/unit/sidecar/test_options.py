from __future__ import annotations

from pathlib import Path

import pytest

from paceline.errors import ConfigError
from paceline.sidecar.locks import DirectoryLock
from paceline.sidecar.options import default_spool_dir, read_options


def test_argument_wins_over_environment() -> None:
    environ = {"PACELINE_URL": "http://a", "PACELINE_RUNTIME_DIR": "/run/a"}
    assert read_options([], environ).url == "http://a"
    given = read_options(["--url", "http://b", "--runtime-dir", "/run/b"], environ)
    assert (given.url, given.runtime_dir) == ("http://b", Path("/run/b"))
    assert given.spool_dir == Path("/run/b/spool")
    assert read_options([], {**environ, "PACELINE_SPOOL_DIR": "/s"}).spool_dir == Path("/s")


def test_event_logs_win_over_the_environment_s_collector() -> None:
    options = read_options(["--events-dir", "/logs"], {"PACELINE_URL": "http://a"})
    assert (options.url, options.events_dir) == ("", Path("/logs"))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "PACELINE_URL"),
        (["--url", "http://a", "--events-dir", "/logs"], "exclude"),
        (["--url", "http://a", "--interval-s", "0"], "interval"),
        (["--url", "http://a", "--spool-bytes", "5"], "spool-bytes"),
    ],
)
def test_unusable_options_are_refused(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_options(argv, {})


def test_spool_never_lies_in_shared_memory_by_itself(tmp_path: Path) -> None:
    assert default_spool_dir(tmp_path) == tmp_path / "spool"
    first = default_spool_dir(Path("/dev/shm/paceline-1"))
    assert not str(first).startswith("/dev/shm")
    assert first != default_spool_dir(Path("/dev/shm/paceline-2"))


def test_lock_that_was_released_can_be_taken_again(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path / "a.lock")
    assert lock.take()
    lock.announce_stopping()
    assert (tmp_path / "a.lock").read_bytes() == b"stopping"
    lock.release()
    assert lock.try_take()
    lock.release()
