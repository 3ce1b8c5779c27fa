"""Pieces of text for annotations, in the template language of Prometheus.

Names in labels come from agents. A node whose name no host can have gets no command that holds
it: what is pasted into a shell is made of checked names only.
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline import metrics

REASONS = {
    "gpu_throttle": "its GPU runs at reduced clocks",
    "gpu_fault": "its GPU or the GPU's link is faulty",
    "compute": "its computation takes longer than that of its peers",
    "input": "its data loader is slow",
    "host": "its host is short of CPU",
    "gc": "Python's garbage collector pauses it",
    "network": "its network is slow",
}
_UNKNOWN_REASON = "the reason is not known"
_HOST_NAME = "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
_NO_NODE = "(?i)^(all|none|default)$"
"""What Slurm would take for another thing than one node: ALL is the whole cluster."""

LISTED = 16
"""So many ranks, nodes or links are named in a text."""
_ODD = "[^A-Za-z0-9._:-]+"
NODE = "{{ if $labels.node }}{{ $labels.node }}{{ else }}an unknown node{{ end }}"
REPORT = "paceline report {{ $labels.job }}"
_DRAIN = (
    "scontrol update nodename={{ $labels.node }} state=drain "
    'reason=paceline-{{ reReplaceAll "_" "-" CAUSE }}  # Kubernetes: kubectl cordon '
    "{{ $labels.node }}"
)
_LOOK = (
    "nvidia-smi -q -d PERFORMANCE,CLOCK,TEMPERATURE,POWER; top -b -n 1 | head -20  # on "
    "{{ $labels.node }}, the only node of the job"
)
_SEVERAL_NODES = f"count(count by (node) ({metrics.NODE_SELF_SECONDS.name}{{job=%q}})) > 1"
_BY_CAUSE = {
    "input": "iostat -x 1 3; top -b -n 1 | head -20  # on {{ $labels.node }}: then more data "
    "loader workers, or local copies of the data",
    "host": "top -H -b -n 1 | head -30  # on {{ $labels.node }}: what takes the CPUs of the job",
    "gc": "gc.collect(); gc.freeze()  # in the program, once after setting up, on every rank",
    "network": "ibstat; ibqueryerrors; ethtool -S IFACE | grep -i err  # on {{ $labels.node }}",
}


def clean(template: str) -> str:
    """Return a template that shows names of nodes without what could steer a chat or a terminal."""
    for name in ("$labels.node", "$row.Labels.node"):
        template = template.replace(
            f"{{{{ {name} }}}}", f'{{{{ reReplaceAll "{_ODD}" "?" {name} }}}}'
        )
    return template


def reason(cause: str = "$labels.cause") -> str:
    """Return the words for a cause, which is a label or a variable of the template."""
    return choice(cause, REASONS, _UNKNOWN_REASON)


def command(cause: str = "$labels.cause") -> str:
    """Return the next command for a node and a cause.

    The only node of a job is not drained from under it: there one looks closer.
    """
    drain = asked(_SEVERAL_NODES, "$labels.job", _DRAIN.replace("CAUSE", cause), _LOOK)
    return safely(choice(cause, _BY_CAUSE, drain))


def safely(text: str, otherwise: str = REPORT) -> str:
    """Return ``text`` where the node has a name that a command may hold."""
    one = f'(match "{_HOST_NAME}" $labels.node) (not (match "{_NO_NODE}" $labels.node))'
    return f"{{{{ if and {one} }}}}{text}{{{{ else }}}}{otherwise}{{{{ end }}}}"


def choice(value: str, texts: Mapping[str, str], otherwise: str) -> str:
    """Return the text whose key ``value`` has."""
    parts = [
        f'{{{{ {"if" if n == 0 else "else if"} eq {value} "{key}" }}}}{text}'
        for n, (key, text) in enumerate(texts.items())
    ]
    return "".join(parts) + f"{{{{ else }}}}{otherwise}{{{{ end }}}}"


def asked(query: str, labels: str, shown: str, otherwise: str = "") -> str:
    """Return ``shown`` with the answer of a query as ``.``, or ``otherwise`` without one.

    Args:
        query: with ``%q`` for each label.
        labels: what stands for them, for example ``$labels.job``.
        shown: a template.
        otherwise: another.
    """
    other = f"{{{{ else }}}}{otherwise}" if otherwise else ""
    return f"{{{{ with printf `{query}` {labels} | query }}}}{shown}{other}{{{{ end }}}}"


def listed(query: str, labels: str, label: str, shown: str = "") -> str:
    """Return ``label``, or ``shown``, of each of the first answers of a query; else "none"."""
    shown = shown or f"{{{{ $row.Labels.{label} }}}}"
    rows = f'printf `topk({LISTED}, {query})` {labels} | query | sortByLabel "{label}"'
    each = f"{{{{ if $n }}}}, {{{{ end }}}}{shown}"
    return f"{{{{ range $n, $row := ({rows}) }}}}{each}{{{{ else }}}}none{{{{ end }}}}"


def cost(query: str = "", labels: str = "", *, doing: str = "stand idle for it") -> str:
    """Return a sentence with the waste per hour, and since the job began where that is counted.

    Args:
        query: a counter of GPU-seconds, with ``%q`` for each label.
        labels: what stands for them.
        doing: what the GPUs do.
    """
    total = asked(
        f"sum({query}) / 3600 >= 0.05",
        labels,
        '; {{ . | first | value | printf "%.1f" }} GPU-hours since the job began',
    )
    measured = (
        '{{ $value | printf "%.1f" }} GPU-hours are lost every hour, as so many GPUs '
        f"{doing}{total if query else ''}"
    )
    unknown = "not measured yet, or next to nothing"
    return f"Cost: {{{{ if ge $value 0.05 }}}}{measured}{{{{ else }}}}{unknown}{{{{ end }}}}."


def gain(query: str, labels: str, without: str) -> str:
    """Return a sentence about what a job gets back; nothing below half a percent."""
    shown = '{{ . | first | value | printf "%.0f" }}'
    share = f"round(100 * max({query})) > 0"
    return asked(share, labels, f" Without {without} the job would take {shown} % less time.")


def gain_of_node() -> str:
    """Return the sentence about draining a node."""
    query = f"{metrics.NODE_RECOVERABLE_RATIO.name}{{job=%q,node=%q}}"
    return gain(query, "$labels.job $labels.node", "this node")


def gain_of_job() -> str:
    """Return the sentence about all that the findings of a job name."""
    query = f"{metrics.JOB_RECOVERABLE_RATIO.name}{{job=%q}}"
    return gain(query, "$labels.job", "what its findings name")
