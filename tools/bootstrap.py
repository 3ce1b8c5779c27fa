"""Check that this machine can build Paceline, then make `.venv` (tools/install.py).

This file must parse on any Python 3, so that an old one is told what is wrong
instead of getting a syntax error. What it imports later may be modern.
"""

import os
import shutil
import sys

OLDEST = (3, 10)
NEWEST = (3, 13)


def version_problem(version: "tuple[int, int]") -> str:
    """Return what is wrong with a Python of ``version``, or an empty string."""
    if OLDEST <= version <= NEWEST:
        return ""
    return (
        "Python {}.{} is {}; Paceline needs Python 3.10 to 3.13.\n"
        "    Name one: make setup PYTHON={}".format(
            version[0],
            version[1],
            "too old" if version < OLDEST else "too new",
            (suitable_pythons() or ["/path/to/python3.12"])[0],
        )
    )


def suitable_pythons() -> "list[str]":
    """Return the commands on PATH that are Pythons of a suitable version."""
    names = ["python3.{}".format(minor) for minor in range(NEWEST[1], OLDEST[1] - 1, -1)]  # noqa: UP032
    return [name for name in names if shutil.which(name)]


def missing_tools() -> "list[str]":
    """Return one line per thing that this machine lacks, each with its remedy."""
    problems = []
    try:
        import ensurepip
        import venv

        del ensurepip, venv
    except ImportError:
        problems.append(
            "Python's venv module is missing.\n    Debian, Ubuntu: apt-get install python3-venv"
        )
    compilers = [os.environ.get("CC", "").split(" ")[0], "cc", "gcc", "clang"]
    if not any(name and shutil.which(name) for name in compilers):
        problems.append(
            "A C compiler is missing (cc, gcc or clang; or set CC).\n"
            "    Debian, Ubuntu: apt-get install gcc libc6-dev\n"
            "    Fedora, RHEL:   dnf install gcc\n"
            "    macOS:          xcode-select --install"
        )
    if not shutil.which("make"):
        problems.append("make is missing.\n    Debian, Ubuntu: apt-get install make")
    return problems


def main() -> int:
    """Print every problem at once and return 2, or go on to install and return its status."""
    problems = []
    wrong_version = version_problem(sys.version_info[:2])
    if wrong_version:
        problems.append(wrong_version)
    problems.extend(missing_tools())
    if problems:
        sys.stderr.write("Paceline cannot be set up yet:\n")
        for problem in problems:
            sys.stderr.write("  - " + problem + "\n")
        return 2
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from tools import install

    return install.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
