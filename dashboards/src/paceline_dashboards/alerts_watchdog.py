"""The alert that always fires: a dead man's switch for Prometheus and Alertmanager.

Whoever evaluates rules or sends messages cannot tell that it is away. So something outside
expects this alert again and again, and tells somebody when it does not come (docs/alerts.md).
It has a file of its own: where a Prometheus has such an alert already, leave the file out.
"""

from __future__ import annotations

from paceline_dashboards.alerts_model import Alert, Rung


def alerts() -> tuple[Alert, ...]:
    """Return the alert, which depends on no series."""
    return (
        Alert(
            name="PacelineWatchdog",
            meaning="Always fires. When it stops coming, alerts do not reach anybody.",
            rungs=(Rung(severity="none", expr="vector(1)", hold="0s"),),
            summary="Alerts are evaluated and sent",
            description="This alert always fires, and its receiver expects it every minute. "
            "Reason: whoever is away cannot say so; silence has to be noticed elsewhere. Cost: "
            "none while it comes; when it stops, no alert reaches anybody.",
            command="amtool alert query alertname=PacelineWatchdog  # once it is missed: the "
            "runbook",
            of_a_job=False,
        ),
    )
