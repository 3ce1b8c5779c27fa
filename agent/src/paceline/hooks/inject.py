"""What ``paceline_inject.pth`` imports at the start of a rank of ``paceline run``.

It must be quick, import no torch, and never fail: it runs before everything else.
"""

from __future__ import annotations

import contextlib

with contextlib.suppress(Exception):
    from paceline.hooks.agent import arm

    arm()
