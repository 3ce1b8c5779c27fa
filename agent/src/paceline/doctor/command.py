"""``paceline doctor``: looks at everything, prints it, and builds what is asked for."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from paceline.doctor.built import build_all, native_hook, plugin_check
from paceline.doctor.check import FAIL, Check
from paceline.doctor.collector import collector
from paceline.doctor.node import injection, rings, settings_check, sidecar
from paceline.doctor.telemetry import telemetry
from paceline.doctor.torch import torch_checks
from paceline.settings import AgentSettings

DESCRIPTION = "Say what of Paceline works here, and what to do about the rest."


def main(argv: Sequence[str]) -> int:
    """Print what was found; 1 if something fails, else 0."""
    parser = argparse.ArgumentParser(prog="paceline doctor", description=DESCRIPTION)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument(
        "--build",
        action="store_true",
        help="first compile the NCCL plugin and the native hook for this torch",
    )
    options = parser.parse_args(argv)
    checks = [*(build_all() if options.build else []), *examine(os.environ)]
    if options.format == "json":
        print(json.dumps({"checks": [asdict(check) for check in checks]}, indent=2))
    else:
        for check in checks:
            print(f"{check.status:4}  {check.name:12} {check.found}")
            if check.remedy:
                print(f"      {'':12} -> {check.remedy}")
    return 1 if any(check.status == FAIL for check in checks) else 0


def examine(env: Mapping[str, str]) -> list[Check]:
    """Look at everything; what cannot even be looked at fails, and the rest goes on."""
    settings = AgentSettings.from_env(env)
    parts: tuple[Callable[[], list[Check]], ...] = (
        lambda: [settings_check(settings, env)],
        torch_checks,
        lambda: [plugin_check()],
        lambda: [native_hook()],
        lambda: [injection()],
        lambda: [rings(settings.runtime_dir)],
        lambda: [sidecar(settings)],
        lambda: [telemetry(env)],
        lambda: collector(settings.url, env.get("PACELINE_TOKEN", "")),
    )
    checks: list[Check] = []
    for part in parts:
        try:
            checks += part()
        except Exception as error:
            checks.append(Check(name="doctor", status=FAIL, found=f"a check failed: {error!r}"))
    return checks
