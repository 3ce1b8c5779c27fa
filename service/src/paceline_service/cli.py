"""The verbs that the service adds to ``paceline``; each imports its module when it is called."""

from __future__ import annotations

from collections.abc import Sequence


def serve(argv: Sequence[str]) -> int:
    """Run the collector."""
    from paceline_service.serve import main

    return main(argv)


def demo(argv: Sequence[str]) -> int:
    """Train a small job, slow one of its ranks, and name it."""
    from paceline_service.demo.command import main

    return main(argv)


def analyze(argv: Sequence[str]) -> int:
    """Analyse event logs offline."""
    from paceline_service.commands.analyze_plain import main

    return main(argv)


def replay(argv: Sequence[str]) -> int:
    """Send event logs to a collector."""
    from paceline_service.commands.replay import main

    return main(argv)


def export(argv: Sequence[str]) -> int:
    """Write a job of a collector as an event log."""
    from paceline_service.commands.export import main

    return main(argv)


def top(argv: Sequence[str]) -> int:
    """Watch a job of a collector in the terminal."""
    from paceline_service.commands.top import main

    return main(argv)


def timeline(argv: Sequence[str]) -> int:
    """Write steps of a job of a collector for Perfetto."""
    from paceline_service.commands.timeline import main

    return main(argv)


def report(argv: Sequence[str]) -> int:
    """Print the report on a job of a collector."""
    from paceline_service.commands.report import main

    return main(argv)


def settings(argv: Sequence[str]) -> int:
    """Show and change what a running job records."""
    from paceline_service.commands.settings import main

    return main(argv)


def tokens(argv: Sequence[str]) -> int:
    """List, make and revoke tokens of a collector."""
    from paceline_service.commands.tokens import main

    return main(argv)


def notify(argv: Sequence[str]) -> int:
    """List the channels of messages about incidents, and try one."""
    from paceline_service.commands.notify import main

    return main(argv)


def database(argv: Sequence[str]) -> int:
    """Look at, upgrade, downgrade and copy the collector's database."""
    from paceline_service.commands.database import main

    return main(argv)


def plan(argv: Sequence[str]) -> int:
    """Say what a step should cost, and what would change it."""
    from paceline_service.commands.plan import main

    return main(argv)


def simulate(argv: Sequence[str]) -> int:
    """Say how ranks that are not equally fast wait for each other."""
    from paceline_service.commands.simulate import main

    return main(argv)


def lab(argv: Sequence[str]) -> int:
    """Train in data parallel and see every synchronization, measured and modelled."""
    from paceline_service.lab.command import main

    return main(argv)


def bench(argv: Sequence[str]) -> int:
    """Measure what Paceline costs."""
    from paceline_service.bench.command import main

    return main(argv)
