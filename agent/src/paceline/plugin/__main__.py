"""``python -m paceline.plugin`` prints where the compiled plugin is, for NCCL_PROFILER_PLUGIN."""

from __future__ import annotations

import sys

from paceline.plugin.library import library_path


def main() -> int:
    """Print the path; 1 where there is none."""
    path = library_path()
    if path is None:
        print("the plugin is not built; `paceline doctor --build` builds it", file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
