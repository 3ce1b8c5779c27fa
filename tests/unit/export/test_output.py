"""A file that a verb writes is complete, or is not there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from paceline.errors import InputError
from paceline_service.commands.output import replacing


def test_a_full_disk_is_told_with_the_name_of_the_file_and_leaves_what_was_there(
    tmp_path: Path,
) -> None:
    path = tmp_path / "answer.html"
    path.write_text("before")

    def write() -> None:
        with replacing(path) as file:
            file.write(b"half of")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(InputError, match=r"answer\.html cannot be written: No space left"):
        write()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_another_failure_of_who_writes_is_not_told_to_be_one_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "answer.html"):
        (tmp_path / "source").read_bytes()
    assert not list(tmp_path.iterdir())
