"""Alerts about jobs: what a finding names, what it costs, and what to run next."""

from __future__ import annotations

from paceline import metrics
from paceline_dashboards import alerts_words as words
from paceline_dashboards.alerts_model import Alert, Options, Rung, by_cost, lately
from paceline_dashboards.alerts_records import (
    JOB_FINDING_GPUS,
    NODE_FINDING,
    NODE_WASTED,
    RANK_FINDING,
    RANK_HOT,
    RANK_WASTED,
    RUNNING,
    THERMAL_REASONS,
)

RANKS_OF_A_SLOW_NODE = 2
"""Two slow ranks of one node are the node's: cooling, power, host and network are shared."""
_NAMED_NODE = "{{ if $labels.node }}{{ $labels.node }}{{ else }}no single one{{ end }}"
OFFENCES, MANY_OFFENCES = 3, 6
"""Incidents of a node in 30 days that are worth a note, and a ticket."""


def _of_rank(expr: str) -> str:
    """Return the waste of the ranks that ``expr`` gives: 0 where none is counted."""
    return f"{expr}\n  * on (job, rank) group_left () {RANK_WASTED.name}\nor {expr} * 0"


def _of_kind(kinds: str) -> str:
    how = "=~" if "|" in kinds else "="
    return f'{JOB_FINDING_GPUS.name}{{kind{how}"{kinds}"}}'


def straggler_rank(options: Options) -> Alert:
    """Return the alert about one slow rank."""
    found = f'{RANK_FINDING.name}{{kind="straggler"}}'
    waste = f"{metrics.RANK_WASTED_GPU_SECONDS.name}{{job=%q,rank=%q}}"
    return Alert(
        name="PacelineStragglerRank",
        meaning="One rank sets the pace of a job, and the others wait for it in every step.",
        rungs=by_cost(_of_rank(found), options),
        summary=f"Rank {{{{ $labels.rank }}}} on {words.NODE} slows job {{{{ $labels.job }}}}: "
        f"{words.reason()}",
        description=f"Rank {{{{ $labels.rank }}}} on {words.NODE} arrives last, step after step, "
        f"and all of job {{{{ $labels.job }}}} waits for it. Reason: {words.reason()} "
        f"({{{{ $labels.cause }}}}). {words.cost(waste, '$labels.job $labels.rank')}"
        f"{words.gain_of_node()}",
        command=words.command(),
    )


def straggler_node(options: Options) -> Alert:
    """Return the alert about a node of which several ranks are slow."""
    found = f'{RANK_FINDING.name}{{kind="straggler",node!=""}}'
    nodes = f"count by (job, node) ({found}) >= {RANKS_OF_A_SLOW_NODE}"
    by_cause = f'topk(1, count by (cause) ({RANK_FINDING.name}{{kind="straggler",job=%q,node=%q}}))'
    cause = (
        '{{ $cause := "unknown" }}'
        f"{{{{ range printf `{by_cause}` $labels.job $labels.node | query }}}}"
        "{{ $cause = .Labels.cause }}{{ end }}"
    )
    ranks = words.listed(
        f'{RANK_FINDING.name}{{kind="straggler",job=%q,node=%q}}',
        "$labels.job $labels.node",
        "rank",
    )
    waste = f"{metrics.NODE_WASTED_GPU_SECONDS.name}{{job=%q,node=%q}}"
    return Alert(
        name="PacelineStragglerNode",
        meaning="Several ranks of one node set the pace of a job: the node is slow as a whole.",
        rungs=by_cost(
            f"{NODE_WASTED.name} and on (job, node) ({nodes})\nor ({nodes}) * 0", options
        ),
        summary=f"{cause}{{{{ $labels.node }}}} slows job {{{{ $labels.job }}}}: "
        f"{words.reason('$cause')}",
        description=f"{cause}Ranks {ranks} on {{{{ $labels.node }}}} are slower than their "
        f"peers, and all of job {{{{ $labels.job }}}} waits for them. Reason: "
        f"{words.reason('$cause')} ({{{{ $cause }}}}). "
        f"{words.cost(waste, '$labels.job $labels.node')}{words.gain_of_node()}",
        command=f"{cause}{words.command('$cause')}",
    )


def thermal_throttling(options: Options) -> Alert:
    """Return the alert about GPUs that are too hot for their load."""
    reasons = words.listed(
        f'{metrics.RANK_THROTTLED.name}{{job=%q,rank=%q,reason=~"{THERMAL_REASONS}"}}',
        "$labels.job $labels.rank",
        "reason",
    )
    heat = words.asked(
        f"{metrics.RANK_GPU_TEMPERATURE_CELSIUS.name}{{job=%q,rank=%q}}",
        "$labels.job $labels.rank",
        ' It has {{ . | first | value | printf "%.0f" }} degrees Celsius.',
    )
    clock = words.asked(
        f"{metrics.RANK_SM_CLOCK_HERTZ.name}{{job=%q,rank=%q}}",
        "$labels.job $labels.rank",
        " Its SM clock is {{ . | first | value | humanize }}Hz.",
    )
    return Alert(
        name="PacelineThermalThrottling",
        meaning="A GPU under load is held down because it is hot, whether others wait for it or "
        "not.",
        rungs=by_cost(_of_rank(RANK_HOT.name), options, page="10m"),
        summary=f"The GPU of rank {{{{ $labels.rank }}}} on {words.NODE} is throttled by heat "
        "(job {{ $labels.job }})",
        description=f"The GPU of rank {{{{ $labels.rank }}}} of job {{{{ $labels.job }}}} on "
        f"{words.NODE} is under load and lowers its clocks. Reason: {reasons}.{heat}{clock} "
        f"{words.cost()}",
        command=words.safely(
            "nvidia-smi -q -d TEMPERATURE,PERFORMANCE,POWER  # on {{ $labels.node }}; then "
            "scontrol update nodename={{ $labels.node }} state=drain reason=paceline-heat, or "
            "kubectl cordon {{ $labels.node }}"
        ),
    )


def communication_degraded(options: Options) -> Alert:
    """Return the alert about a network that became slow."""
    nodes = words.listed(
        f'{NODE_FINDING.name}{{kind="communication",job=%q}}',
        "$labels.job",
        "node",
    )
    links = words.listed(
        f"{metrics.LINK_FLAGGED.name}{{job=%q}}",
        "$labels.job",
        "source",
        "{{ $row.Labels.source }} to {{ $row.Labels.destination }}",
    )
    return Alert(
        name="PacelineCommunicationDegraded",
        meaning="Transfers take longer than they did, or than those of comparable groups.",
        rungs=by_cost(_of_kind("communication"), options),
        summary="The network slows job {{ $labels.job }}"
        "{{ if $labels.node }}, at {{ $labels.node }}{{ end }}",
        description="Transfers of job {{ $labels.job }} take longer than they did, or than those "
        f"of their siblings. Nodes: {nodes}. Links between ranks: {links}. Reason: "
        f"{words.reason()} ({{{{ $labels.cause }}}}). {_finding_cost()}{words.gain_of_job()}",
        command=words.safely(
            "ibstat; ibqueryerrors; ethtool -S IFACE | grep -i err  # on {{ $labels.node }}; "
            f"what the transfers took: {words.REPORT}",
            f"{words.REPORT}  # names the links; then ib_write_bw --report_gbits between their "
            "NICs",
        ),
    )


def communication_bound(options: Options) -> Alert:
    """Return the alert about a job that communicates longer than it computes."""
    gamma = words.asked(
        f"{metrics.JOB_GAMMA_RATIO.name}{{job=%q}}",
        "$labels.job",
        ' Exposed communication is {{ . | first | value | printf "%.2f" }} times the compute.',
    )
    cost = words.cost(doing="do nothing but wait for transfers")
    return Alert(
        name="PacelineCommunicationBound",
        meaning="A job communicates longer than it computes, and no rank, link or node is to "
        "blame.",
        rungs=by_cost(
            _of_kind("communication_bound"), options, page=None, ticket="30m", info="30m"
        ),
        summary="Job {{ $labels.job }} communicates longer than it computes",
        description=f"Job {{{{ $labels.job }}}} is bound by communication.{gamma} No rank, link or "
        "node stands out: the job is made so. Reason: its batch is too small for its network, or "
        f"its groups span too many nodes. {cost}",
        command=f"{words.REPORT}  # tells the batch and the group size at which this ends",
    )


def hang(options: Options) -> Alert:
    """Return the alert about a job that stands still."""
    ranks = words.listed(f'{RANK_FINDING.name}{{kind="hang",job=%q}}', "$labels.job", "rank")
    age = words.asked(
        f"max({metrics.INFLIGHT_AGE_SECONDS.name}{{job=%q}})",
        "$labels.job",
        " Its oldest collective has waited for {{ . | first | value | humanizeDuration }}.",
    )
    causes = {
        "host": "the rank never entered the collective that the others wait in",
        "gpu_fault": "the rank entered it, and its GPU does not finish it",
        "network": "every member has entered it, and none leaves it",
    }
    why = words.choice("$labels.cause", causes, "the rank died, or is not heard of")
    commands = {
        "host": "py-spy dump --pid PID  # of rank RANKS on {{ $labels.node }}; Kubernetes: "
        "kubectl exec POD -- py-spy dump --pid PID",
        "gpu_fault": "dmesg -T | grep -i xid; nvidia-smi -q -d ECC,PERFORMANCE  # on "
        "{{ $labels.node }}",
    }
    chosen = {key: text.replace("RANKS", ranks) for key, text in commands.items()}
    return Alert(
        name="PacelineHang",
        meaning="All ranks of a job stand still in a collective that somebody never enters or "
        "leaves.",
        rungs=by_cost(_of_kind("hang"), options, page="1m", ticket="1m", info="1m"),
        summary="Job {{ $labels.job }} hangs"
        "{{ if $labels.node }}, because of {{ $labels.node }}{{ end }}",
        description=f"Job {{{{ $labels.job }}}} makes no step.{age} Ranks that keep it standing: "
        f"{ranks}; node: {_NAMED_NODE}. Reason: {why} ({{{{ $labels.cause }}}}). "
        f"{words.cost(doing='stand still')}",
        command=words.safely(words.choice("$labels.cause", chosen, words.REPORT)),
    )


def desync(options: Options) -> Alert:
    """Return the alert about ranks that do not run the same program, or not on the same numbers."""
    ranks = words.listed(f'{RANK_FINDING.name}{{kind="desync",job=%q}}', "$labels.job", "rank")
    cost = words.cost(doing="stand still or compute nonsense")
    return Alert(
        name="PacelineDesync",
        meaning="Ranks issued different collectives under one number, wait for each other, or hold "
        "other parameters than their replicas.",
        rungs=by_cost(_of_kind("desync"), options, page="1m", ticket="1m", info="1m"),
        summary="The ranks of job {{ $labels.job }} disagree",
        description="Ranks of job {{ $labels.job }} issued collectives that do not fit, or hold "
        f"other parameters than their replicas. Ranks that are named: {ranks}; node: "
        f"{_NAMED_NODE}. Reason: the program (a branch that depends on the rank, an uneven number "
        f"of batches), or memory and arithmetic that went wrong unnoticed. {cost}",
        command=f"{words.REPORT}  # says which of the two; then stop the job: scancel JOBID, or "
        "kubectl delete the job",
    )


def uniform_slowdown(options: Options) -> Alert:
    """Return the alert about a job that is slower than its own past."""
    return Alert(
        name="PacelineUniformSlowdown",
        meaning="All ranks of a job are slower than they were: none of them is to blame.",
        rungs=by_cost(_of_kind("uniform_slowdown"), options, page="10m", ticket="15m"),
        summary="All ranks of job {{ $labels.job }} are slower than they were",
        description="All ranks of job {{ $labels.job }} take longer for a step than in the past of "
        "this job; no node stands out. Reason: "
        + words.choice(
            "$labels.cause",
            {
                "gpu_throttle": "most GPUs run at lower clocks, as with a power cap or a warm hall",
                "host": "CPUs are short on most nodes",
                "input": "the data come more slowly, as with a loaded file system",
            },
            "work has grown, or something that all nodes share is slow",
        )
        + f" ({{{{ $labels.cause }}}}). {_finding_cost('are lost to it')}",
        command=f"{words.REPORT}  # says which phase grew, and since which step",
    )


def imbalance(options: Options) -> Alert:
    """Return the alert about work that is not spread evenly."""
    what = words.choice(
        "$labels.kind",
        {"stage_imbalance": "a pipeline stage has more work than the others"},
        "batches differ in length, so that another rank is late in every step",
    )
    return Alert(
        name="PacelineImbalance",
        meaning="The work is spread unevenly over ranks or pipeline stages; no hardware is slow.",
        rungs=by_cost(
            _of_kind("imbalance|stage_imbalance"), options, page=None, ticket="30m", info="30m"
        ),
        summary="The work of job {{ $labels.job }} is spread unevenly",
        description=f"Ranks of job {{{{ $labels.job }}}} wait because {what}. Reason: the program "
        "and its data, on no single node "
        f"({{{{ $labels.kind }}}}). {_finding_cost()}{words.gain_of_job()}",
        command=f"{words.REPORT}  # says which stage, or how much the batches differ",
    )


def agents_silent(options: Options) -> Alert:
    """Return the alert about ranks of which nothing is heard."""
    some = f"{lately(metrics.JOB_SILENT_RANKS)} > 0 and on (job) {RUNNING.name}"
    ranks = metrics.JOB_RANKS.name
    # A job of which nothing is heard may be over: an hour later nobody is told any more.
    all_of_it = (
        f'max by (job) ({ranks}{{state="silent"}})\n'
        f'and on (job) max by (job) (max_over_time({ranks}{{state="running"}}[1h]))'
    )
    return Alert(
        name="PacelineAgentsSilent",
        meaning="Nothing is heard of ranks of a job that runs, or of the whole job since lately.",
        rungs=(Rung(severity="ticket", expr=f"{some}\nor {all_of_it}", hold="5m"),),
        summary="Ranks of job {{ $labels.job }} that are not heard of: "
        '{{ $value | printf "%.0f" }}',
        description="Ranks of job {{ $labels.job }} from which nothing comes: "
        '{{ $value | printf "%.0f" }}. '
        "Reason: their node or its network is down, their sidecar has ended, or its token was "
        "revoked. Cost: nobody watches these GPUs; what is wrong there is not seen.",
        command=f"{words.REPORT}  # names the ranks and their nodes; on one of them: paceline "
        "doctor",
    )


def repeat_offender(options: Options) -> Alert:
    """Return the alert about a node that incidents name again and again."""
    found = f"max by (node) ({metrics.NODE_OFFENCES.name})"
    return Alert(
        name="PacelineRepeatOffender",
        meaning="Incidents of several jobs or launches have named one node within 30 days.",
        rungs=(
            Rung(severity="ticket", expr=f"{found} >= {MANY_OFFENCES}", hold="15m"),
            Rung(severity="info", expr=f"{found} >= {OFFENCES}", hold="15m"),
        ),
        summary='Node {{ $labels.node }} was named by {{ $value | printf "%.0f" }} incidents in 30 '
        "days",
        description='{{ $value | printf "%.0f" }} incidents of the last 30 days named node '
        "{{ $labels.node }}. Reason: it stands in each of them; the page lists them. Cost: it will "
        "slow the next job, too.",
        command=words.safely(
            "scontrol update nodename={{ $labels.node }} state=drain "
            "reason=paceline-repeat-offender  # Kubernetes: kubectl cordon {{ $labels.node }}; "
            "then dcgmi diag -r 3",
            "the offenders of the collector's page",
        ),
        of_a_job=False,
    )


def _finding_cost(doing: str = "stand idle for it") -> str:
    waste = f"{metrics.JOB_FINDING_SECONDS.name}{{job=%q,kind=%q}}"
    return words.cost(waste, "$labels.job $labels.kind", doing=doing)


def alerts(options: Options) -> tuple[Alert, ...]:
    """Return all alerts about jobs."""
    made = (
        hang, desync, straggler_node, straggler_rank, thermal_throttling, communication_degraded,
        communication_bound, uniform_slowdown, imbalance, agents_silent, repeat_offender,
    )  # fmt: skip
    return tuple(make(options) for make in made)
