"""Metric families as text, for Prometheus and as OpenMetrics.

prometheus-client has this, too, at 8 us a line of OpenMetrics: a job of 1,024 ranks would hold
the interpreter for a quarter of a second at every scrape. Here it is 1 us. A test holds both
against each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


def content_type(accept: str) -> str:
    """Return the format that a request with this Accept header is given."""
    for part in accept.lower().split(","):
        name, *parameters = (word.strip() for word in part.split(";"))
        if name == "application/openmetrics-text" and "version=0.0.1" not in parameters:
            return OPENMETRICS if "q=0" not in parameters else TEXT
    return TEXT


def expose(families: Iterable[Family], form: str) -> bytes:
    """Return ``families`` as text in one of the two formats."""
    is_open = form == OPENMETRICS
    lines: list[str] = []
    for family in families:
        name = family.name
        if family.type == "counter" and not is_open:
            name += "_total"
        documentation = family.documentation.translate(_ESCAPES if is_open else _HELP_ESCAPES)
        lines.append(f"# HELP {name} {documentation}\n# TYPE {name} {family.type}\n")
        _samples(lines, family.samples, examples=is_open)
    if is_open:
        lines.append("# EOF\n")
    return "".join(lines).encode()


def _samples(lines: list[str], samples: Iterable[Sample], *, examples: bool) -> None:
    known: dict[str, str] = {}
    """Label values that were escaped already: most of them come again and again."""
    for sample in samples:
        pairs = []
        for key, value in sample.labels.items():
            text = known.get(value)
            if text is None:
                text = known[value] = value.translate(_ESCAPES)
            pairs.append(f'{key}="{text}"')
        labels = f"{{{','.join(pairs)}}}" if pairs else ""
        example = _example(sample) if examples and sample.exemplar is not None else ""
        lines.append(f"{sample.name}{labels} {_number(sample.value)}{example}\n")


def _example(sample: Sample) -> str:
    one = sample.exemplar
    assert one is not None
    labels = ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in one.labels.items())
    time_s = "" if one.timestamp is None else f" {one.timestamp}"
    return f" # {{{labels}}} {_number(one.value)}{time_s}"


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
