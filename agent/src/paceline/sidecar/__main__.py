"""``python -m paceline.sidecar``."""

from __future__ import annotations

import sys

from paceline.sidecar.main import main

sys.exit(main(sys.argv[1:]))
