"""Starts two ranks of a script, and once more when one of them fails, as an elastic launcher does.

torchrun itself is not used here: on Gloo its second attempt meets the first one's addresses and
fails, with and without Paceline (torch 2.13).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys

RANKS = 2
SAME_ATTEMPT = os.environ.get("SAME_ATTEMPT") == "1"
"""As launchers do that restart processes and tell nobody."""


def attempt(count: int, script: str) -> bool:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, script],
            env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank),
                 "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                 "TORCHELASTIC_RESTART_COUNT": "0" if SAME_ATTEMPT else str(count)},
        )
        for rank in range(RANKS)
    ]  # fmt: skip
    statuses = [rank.wait() for rank in ranks]
    return not any(statuses)


if __name__ == "__main__":
    sys.exit(0 if attempt(0, sys.argv[1]) or attempt(1, sys.argv[1]) else 1)
