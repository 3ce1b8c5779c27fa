"""What ``paceline_inject.pth`` imports at the start of every Python process of `paceline run`.

It must be quick, import no torch, and never fail: it runs before everything else. Which of the
processes are ranks shows later, when one makes a process group; until torch.distributed is
imported there is nothing but a finder of imports.
"""

from __future__ import annotations

import contextlib
import os

with contextlib.suppress(Exception):
    from paceline.hooks.imports import PostImportFinder

    # The token is the sidecar's. A training process, and all it starts, must not have it.
    os.environ.pop("PACELINE_TOKEN", None)

    def _arm(module: object) -> None:
        from paceline.hooks.agent import arm

        arm(module=module)  # type: ignore[arg-type]

    PostImportFinder().when_imported("torch.distributed.distributed_c10d", _arm)
