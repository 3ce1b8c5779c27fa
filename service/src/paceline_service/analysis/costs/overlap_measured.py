"""What a job hides of its communication, beside what the model says it could.

Source and assumptions: docs/math/overlap.md, "Against a real job".
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline_service.analysis.costs.overlap import Overlap

BACKWARD_SHARE = 2 / 3
"""Of compute: 4 of 6 operations per parameter and token (docs/math/costs.md)."""
_LEAST_S = 1e-9
_ROUNDING = 1e-9
_MOST_LATENCY = 0.99
"""Of the transfers: a fit over other transfers may say more than these took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a report tells of one step of a mean rank.

    A trace tells how much of a rank's communication ran beside no computation, waiting for others
    included; whether it was the waiting or the transfer that was hidden it does not tell.

    Attributes:
        transfer_s: communication without waiting for others, hidden or not.
        least_exposed_s: of it, what ran beside no computation if all that was hidden is transfer.
        most_exposed_s: likewise, if what was hidden is waiting as far as there was any.
        wait_s: waiting for others inside collectives; no overlap model explains it.
        backward_s: what communication could hide behind.
        buckets: collectives of a step, at least 1.
        latency_s: of each, however small it is; 0 where it is not known apart from the transfer.
    """

    transfer_s: float
    least_exposed_s: float
    most_exposed_s: float
    wait_s: float
    backward_s: float
    buckets: int
    latency_s: float = 0.0

    @property
    def model(self) -> Overlap:
        """The model with this backward pass; all buckets together take ``transfer_s``."""
        latency_s = min(self.latency_s, _MOST_LATENCY * self.transfer_s / self.buckets)
        return Overlap(
            backward_s=self.backward_s, latency_s=latency_s,
            transfer_s=self.transfer_s - self.buckets * latency_s,
        )  # fmt: skip

    @property
    def hidden_ratio(self) -> tuple[float, float]:
        """Share of the transfer that ran beside computation: at least, and at most."""
        return self._hidden(self.most_exposed_s), self._hidden(self.least_exposed_s)

    def _hidden(self, exposed_s: float) -> float:
        ratio = 1 - exposed_s / self.transfer_s
        return ratio if ratio > _ROUNDING else 0.0

    @property
    def expected_exposed_s(self) -> float:
        """What the model leaves exposed with as many equal buckets."""
        return self.model.exposed_s(self.buckets)

    @property
    def gain_s(self) -> tuple[float, float]:
        """What a step would gain if its buckets hid what they could: at least, and at most."""
        expected_s = self.expected_exposed_s
        return (
            max(self.least_exposed_s - expected_s, 0.0),
            max(self.most_exposed_s - expected_s, 0.0),
        )


def measured_from_trace(
    *,
    compute_s: float,
    communication_s: float,
    exposed_s: float,
    wait_s: float,
    collectives: int,
    rank_steps: int,
    steps: int,
) -> Measured:
    """Return one step of a mean rank from the sums of a report on traces (eq. 9).

    Args:
        compute_s: kernels that compute, all ranks and steps.
        communication_s: kernels that communicate, likewise; waiting is part of them.
        exposed_s: of that, what ran beside no computation.
        wait_s: of that, waiting for others.
        collectives: of the job, each counted once.
        rank_steps: ranks times steps, over which the sums go.
        steps: of the job.
    """
    transfer_s = max(communication_s - wait_s, _LEAST_S)
    return Measured(
        transfer_s=transfer_s / rank_steps,
        least_exposed_s=min(max(exposed_s - wait_s, 0.0), transfer_s) / rank_steps,
        most_exposed_s=min(exposed_s, transfer_s) / rank_steps,
        wait_s=wait_s / rank_steps,
        backward_s=max(compute_s, _LEAST_S) * BACKWARD_SHARE / rank_steps,
        buckets=max(round(collectives / steps), 1),
    )
