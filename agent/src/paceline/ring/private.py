"""The directory that rings are in by default: this user's alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from paceline.errors import ConfigError
from paceline.settings import default_runtime_dir


def make_private(directory: Path) -> None:
    """Make a directory for rings, for this user alone; the default one is checked.

    Raises:
        ConfigError: it is not safe to use.
    """
    default = default_runtime_dir()
    if default in directory.parents:
        default.mkdir(mode=0o700, parents=True, exist_ok=True)  # else as the umask has it
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private(directory)


def check_private(directory: Path) -> None:
    """Refuse the default directory, and all in it, where others made it or may write to it.

    Its name can be guessed, and its parent is open to everybody. A directory that was named by
    a setting is the business of whoever named it.

    Raises:
        ConfigError: it is not safe to use.
    """
    default = default_runtime_dir()
    if default not in (directory, *directory.parents):
        return
    directory = default
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode):
        fault = "is no directory"
    elif found.st_uid != os.geteuid():
        fault = f"belongs to user {found.st_uid}"
    elif found.st_mode & 0o022:
        fault = f"can be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    else:
        return
    raise ConfigError(
        f"{directory} {fault}: it is not used; remove it, or set PACELINE_RUNTIME_DIR to a "
        "directory that only this user can write"
    )
