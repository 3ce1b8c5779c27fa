"""What Grafana puts into queries: variables, intervals, and the macros of its PostgreSQL source."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.integration.dashboards.recording import INTERVAL_S


@dataclass(frozen=True, kw_only=True)
class View:
    """What is chosen at the top of a dashboard."""

    from_s: float
    to_s: float
    values: dict[str, str]
    """Variable -> value; several values as a regular expression."""

    step_s: int = INTERVAL_S
    """The distance of samples."""

    def promql(self, expr: str) -> str:
        """Return a query as Grafana sends it to Prometheus."""
        own = {
            # Grafana takes four scrapes, or the distance of samples and a scrape.
            "__rate_interval": f"{4 * self.step_s}s",
            "__range": f"{max(int(self.to_s - self.from_s), 1)}s",
        }
        return self._filled(expr, own)

    def sql(self, text: str) -> str:
        """Return a statement as it reaches PostgreSQL."""
        from_ns, to_ns = int(self.from_s * 1e9), int(self.to_s * 1e9)
        text = re.sub(
            r"\$__unixEpochNanoFilter\(([^)]*)\)",
            lambda found: f"{found[1]} >= {from_ns} AND {found[1]} <= {to_ns}",
            text,
        )
        for macro, value in (
            ("$__unixEpochNanoFrom()", from_ns),
            ("$__unixEpochNanoTo()", to_ns),
            ("$__unixEpochTo()", to_ns // 10**9),
        ):
            text = text.replace(macro, str(value))
        assert "$__" not in text, text
        return self._filled(text, {})

    def _filled(self, text: str, own: dict[str, str]) -> str:
        values = {**self.values, **own}

        def value(found: re.Match[str]) -> str:
            name, form = found[1] or found[3], found[2]
            if name.isdigit():  # of a regular expression in PromQL; Grafana leaves it alone, too
                return found[0]
            plain = values[name]
            return "'" + plain.replace("'", "''") + "'" if form == "sqlstring" else plain

        return re.sub(r"\$(?:\{(\w+)(?::(\w+))?\}|(\w+))", value, text)
