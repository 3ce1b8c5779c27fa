"""Alerts about Paceline itself: what is not seen, and why.

Jobs train on whatever happens here, so what this costs is sight. Somebody is woken where no
verdict is made at all, and nobody would be told of a job that hangs.
"""

from __future__ import annotations

from paceline import metrics
from paceline.metrics import Metric
from paceline_dashboards.alerts_model import Alert, Rung
from paceline_dashboards.alerts_words import choice

SCRAPE_JOBS = "(.+-)?paceline(-collector|-gateway|-analyzer)?"
"""Names that the scrape of a collector has in Prometheus, here and where a chart made them."""
LAG_S = 20
"""From here on the collector itself says that it cannot keep up (docs/control.md)."""
LOW_BYTES, NO_BYTES = 1 << 30, 128 << 20
BUS_MESSAGES = 10_000
_WHERE = "{{ $labels.instance }}"
_PLACE = "Collector " + _WHERE


def _by_instance(expr: str, how: str = "sum") -> str:
    return f"{how} by (instance) ({expr})"


def _grows(metric: Metric, window: str) -> str:
    return f"{_by_instance(f'increase({metric.name}[{window}])')} > 0"


def _down() -> Alert:
    selector = f'{{job=~"{SCRAPE_JOBS}"}}'
    expr = f"up{selector} == 0\nor absent(up{selector})"
    return Alert(
        name="PacelineCollectorDown",
        meaning="Prometheus cannot reach the collector: no job is watched.",
        rungs=(
            Rung(severity="page", expr=expr, hold="15m"),
            Rung(severity="ticket", expr=expr, hold="3m"),
        ),
        summary="{{ if $labels.instance }}"
        f"{_PLACE} does not answer{{{{ else }}}}No collector is scraped{{{{ end }}}}",
        description="Prometheus gets no metrics from "
        f"{{{{ if $labels.instance }}}}{_WHERE}{{{{ else }}}}any collector{{{{ end }}}}. Reason: "
        "the process or its machine is down, the network is, or the token of the scrape was "
        "revoked. Cost: no job is watched. Jobs train on, and sidecars keep their frames while "
        "their spools have room.",
        command="systemctl status paceline-collector  # Kubernetes: kubectl -n paceline get pods "
        "-l app.kubernetes.io/name=paceline; then curl -s http://ADDRESS/readyz",
        of_a_job=False,
    )


def _lag() -> Alert:
    late = _by_instance(metrics.ANALYSIS_LAG_SECONDS.name, "max")
    backlog = _by_instance(metrics.ANALYSIS_BACKLOG_BYTES.name, "max")
    moving = _by_instance(f"rate({metrics.ANALYSIS_FRAMES.name}[5m])")
    bus = _by_instance(metrics.BUS_LAG_MESSAGES.name)
    return Alert(
        name="PacelineCollectorLag",
        meaning="Verdicts come late, or not at all, because the analysis is behind the frames.",
        rungs=(
            Rung(
                severity="ticket",
                expr=f"{late} > {LAG_S}\nor {backlog} > 0 and on (instance) ({moving} == 0)\n"
                f"or {bus} > {BUS_MESSAGES}",
                hold="10m",
            ),
        ),
        summary=f"{_PLACE} is behind: verdicts come late",
        description=f"The analysis of collector {_WHERE} is behind what it receives (seconds, or "
        "bytes or messages that wait: {{ $value | humanize }}). Reason: more comes than one core "
        "analyses, or the database is slow. Cost: findings, and their alerts, come late.",
        command="paceline settings JOB --stride 10  # of the job that sends most; then see "
        "docs/sizing.md",
        of_a_job=False,
    )


def _overloaded() -> Alert:
    refused = _by_instance(f"rate({metrics.INGEST_REFUSED.name}[5m])")
    thinned = _by_instance(f"{metrics.RELIEF_STRIDE.name} > 1", "count")
    return Alert(
        name="PacelineCollectorOverloaded",
        meaning="More comes than the collector takes: it refuses frames, or asks jobs for fewer "
        "steps.",
        rungs=(Rung(severity="ticket", expr=f"{refused} > 0\nor {thinned} > 0", hold="15m"),),
        summary=f"{_PLACE} cannot take what is sent to it",
        description=f"Collector {_WHERE} has answered 429 or has asked jobs to keep only some of "
        "their steps for a quarter of an hour. Reason: it is too small for the jobs that it "
        "watches. Cost: fewer steps are seen, and spools fill.",
        command="paceline settings JOB  # shows relief_stride; a larger machine, PostgreSQL or "
        "more analyzers: docs/sizing.md",
        of_a_job=False,
    )


def _drops() -> Alert:
    counted = f'{metrics.DROPPED.name}{{stage!="store"}}'
    lost = f"sum by (stage, reason) (increase({counted}[15m])) > 0"
    stages = {
        "agent": "at the rank: a ring was overwritten or a spool was full",
        "ingest": "at the collector's door: frames were damaged, too large or not allowed",
    }
    return Alert(
        name="PacelineDrops",
        meaning="Records were lost on their way; reports say that they are incomplete.",
        rungs=(
            Rung(severity="ticket", expr=lost, hold="30m"),
            Rung(severity="info", expr=lost, hold="5m"),
        ),
        summary="Records are lost: {{ $labels.stage }}, {{ $labels.reason }}",
        description="Records or frames lost in a quarter of an hour: "
        '{{ $value | printf "%.0f" }}, '
        + choice("$labels.stage", stages, "in the analysis: frames were missing, late or senseless")
        + ". Reason: {{ $labels.reason }}. Cost: verdicts stand on less, and reports say so.",
        command="paceline report JOB  # `data.dropped` tells it by job; then docs/collector.md",
        of_a_job=False,
    )


def _commit_failures() -> Alert:
    failing = _grows(metrics.INGEST_COMMIT_FAILURES, "5m")
    return Alert(
        name="PacelineCommitFailures",
        meaning="The database refuses what the collector writes: nothing is acknowledged.",
        rungs=(
            Rung(severity="page", expr=failing, hold="30m"),
            Rung(severity="ticket", expr=failing, hold="2m"),
        ),
        summary=f"{_PLACE} cannot write to its database",
        description=f"Transactions of collector {_WHERE} fail. Reason: its disk is full, or its "
        "database is away; /readyz has the error. Cost: no new verdicts. Nothing acknowledged is "
        "lost: sidecars keep their frames while their spools have room.",
        command='curl -s -H "Authorization: Bearer $PACELINE_TOKEN" http://ADDRESS/readyz; df -h',
        of_a_job=False,
    )


def _disk_full() -> Alert:
    free = _by_instance(metrics.STORE_FREE_BYTES.name, "min")
    foreseen = f"predict_linear({metrics.STORE_FREE_BYTES.name}[1h], 4 * 3600)"
    soon = f"{free} and on (instance) {foreseen} < 0"
    return Alert(
        name="PacelineDiskFull",
        meaning="The disk of the collector's database is full, or will be within hours.",
        rungs=(
            Rung(severity="page", expr=f"{free} < {NO_BYTES}", hold="2m"),
            Rung(severity="ticket", expr=f"{free} < {LOW_BYTES}\nor {soon}", hold="10m"),
        ),
        summary=f"The disk of collector {_WHERE} is nearly full",
        description="{{ $value | humanize1024 }}B are free on the disk of the database of "
        f"collector {_WHERE}. Reason: the limits of retention are larger than the disk, or "
        "something else fills it. Cost: on a full disk nothing is stored or acknowledged, and no "
        "verdict is made.",
        command="df -h; du -sh /var/lib/paceline/*  # then PACELINE_SERVE_RAW_RETENTION_BYTES, see "
        "docs/operations.md",
        of_a_job=False,
    )


def _analysis_failed() -> Alert:
    return Alert(
        name="PacelineAnalysisFailed",
        meaning="The analysis of an attempt stopped with an error of Paceline's own.",
        rungs=(Rung(severity="ticket", expr=_grows(metrics.ANALYSIS_FAILURES, "15m"), hold="1m"),),
        summary=f"{_PLACE} failed to analyse a job",
        description=f"The analysis of an attempt on collector {_WHERE} ended with an error. "
        "Reason: a defect of Paceline; the log has the trace. Cost: that job has no verdicts any "
        "more; its frames are stored, and other jobs are analysed.",
        command="journalctl -u paceline-collector | grep 'analysis failed'  # Kubernetes: kubectl "
        "logs; a restart analyses the stored frames again",
        of_a_job=False,
    )


def _persist_failing() -> Alert:
    failing = _grows(metrics.PERSIST_FAILURES, "10m")
    given_up = _grows(metrics.PERSIST_GIVEN_UP, "15m")
    return Alert(
        name="PacelinePersistFailing",
        meaning="Steps and incidents cannot be written; history and the sawtooth have gaps.",
        rungs=(Rung(severity="ticket", expr=f"{failing}\nor {given_up}", hold="10m"),),
        summary=f"{_PLACE} cannot write steps and incidents",
        description=f"Collector {_WHERE} analyses, and cannot write what it finds. Reason: the "
        "database is away, slow or full. Cost: after some time steps and lanes are given up, and "
        "history has gaps; verdicts and alerts go on.",
        command='curl -s -H "Authorization: Bearer $PACELINE_TOKEN" http://ADDRESS/readyz; df -h',
        of_a_job=False,
    )


def _notifications_failing() -> Alert:
    waiting = _by_instance(metrics.NOTIFICATIONS_WAITING.name, "max")
    earlier = _by_instance(f"{metrics.NOTIFICATIONS_WAITING.name} offset 15m", "max")
    all_the_while = f"min_over_time(({waiting})[15m:1m]) > 0 and on (instance) {earlier}"
    ended = f'{metrics.NOTIFICATIONS.name}{{outcome=~"refused|given_up"}}'
    # The series begins with the first one that is lost, so increase() would not see that one.
    now, before = _by_instance(ended), _by_instance(f"{ended} offset 15m")
    lost = f"{now} - ({before} or {earlier} * 0) > 0"
    return Alert(
        name="PacelineNotificationsFailing",
        meaning="Messages that the collector itself sends about incidents do not arrive.",
        rungs=(
            Rung(
                severity="ticket",
                expr=f"{all_the_while}\nor {lost}",
                hold="1m",
            ),
        ),
        summary=f"Messages of collector {_WHERE} do not arrive",
        description="Messages about incidents that have been waiting for a quarter of an hour on "
        f"collector {_WHERE}, or were refused or given up: "
        '{{ $value | printf "%.0f" }}. Reason: the '
        "receiver is away or does not take them. "
        "Cost: whoever relies on them hears of nothing; alerts of Prometheus go on.",
        command="journalctl -u paceline-collector | grep -i notif  # Kubernetes: kubectl logs; "
        "then docs/messages.md",
        of_a_job=False,
    )


def _bus_away() -> Alert:
    return Alert(
        name="PacelineBusAway",
        meaning="Gateways cannot hand frames to the stream between them and the analyzers.",
        rungs=(Rung(severity="ticket", expr=_grows(metrics.BUS_FAILURES, "5m"), hold="5m"),),
        summary=f"Gateway {_WHERE} cannot reach the stream",
        description=f"Gateway {_WHERE} answers 503. Reason: NATS is away, slow, or its stream is "
        "full. Cost: no new verdicts; sidecars keep their frames while their spools have room.",
        command="nats stream report  # then docs/scale-out.md",
        of_a_job=False,
    )


def alerts() -> tuple[Alert, ...]:
    """Return all alerts about Paceline itself."""
    return (
        _down(), _disk_full(), _commit_failures(), _lag(), _overloaded(), _drops(),
        _analysis_failed(), _persist_failing(), _notifications_failing(), _bus_away(),
    )  # fmt: skip
