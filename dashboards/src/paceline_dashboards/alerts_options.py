"""The options of the command that concern rules."""

from __future__ import annotations

import argparse
from pathlib import Path

from paceline_dashboards.alerts_model import Options

_DEFAULT = Options()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command ``build``."""
    parser.add_argument("--rules", type=Path, metavar="DIR", help="also build alerts and rules")
    parser.add_argument(
        "--page-gpus", type=_gpus, default=_DEFAULT.page_gpus, metavar="N",
        help="idle GPUs from which an alert pages (%(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--ticket-gpus", type=_gpus, default=_DEFAULT.ticket_gpus, metavar="N",
        help="idle GPUs from which an alert is a ticket (%(default)g)",
    )  # fmt: skip
    for name, what in (
        ("runbooks", "where the runbooks are read"),
        ("grafana", "Grafana as people reach it"),
        ("page", "the collector as people reach it"),
    ):
        default = getattr(_DEFAULT, name)
        parser.add_argument(
            f"--{name}", type=_address, default=default, metavar="URL",
            help=f"{what} (%(default)s)",
        )  # fmt: skip


def options_of(arguments: argparse.Namespace) -> Options:
    """Return what was asked for."""
    return Options(
        page_gpus=arguments.page_gpus,
        ticket_gpus=min(arguments.ticket_gpus, arguments.page_gpus),
        runbooks=arguments.runbooks,
        grafana=arguments.grafana,
        page=arguments.page,
    )


def _gpus(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is no number of GPUs: give one above 0")
    return value


def _address(text: str) -> str:
    # It becomes part of a template: what would begin another one is no address anyway.
    if "{{" in text or not text.isprintable():
        raise argparse.ArgumentTypeError(f"{text!r} is no address")
    return text
