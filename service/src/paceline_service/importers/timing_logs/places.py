"""Where ranks stand in the job that a log is of: stages, replicas, tensor-parallel groups."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.dataclass import dataclass
from paceline_service.importers.timing_logs.series import number_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The shape of a job; None where the log does not tell it.

    Ranks are numbered as Megatron does: tensor before context before data before pipeline, or
    pipeline before data where it was asked to.
    """

    world_size: int
    stages: int | None
    tensor: int | None
    data_outside: bool = False

    def stage(self, rank: int) -> int:
        """Return the pipeline stage of a rank."""
        if not self.stages or self.stages == 1:
            return 0
        if self.data_outside:
            return rank // max(self.tensor or 1, 1) % self.stages
        return rank // (self.world_size // self.stages)

    def before(self, rank: int) -> int:
        """Return the rank of the stage before that hands to ``rank``; -1 for the first stage."""
        return rank - self._stride if self.stage(rank) > 0 else -1

    def after(self, rank: int) -> int:
        """Return the rank of the next stage that takes from ``rank``; -1 for the last stage."""
        return rank + self._stride if self.stage(rank) < (self.stages or 1) - 1 else -1

    def tensor_group(self, rank: int) -> list[int]:
        """Return the ranks that share the layers of a rank."""
        size = max(self.tensor or 1, 1)
        return list(range(rank // size * size, rank // size * size + size))

    @property
    def _stride(self) -> int:
        if self.data_outside:
            return max(self.tensor or 1, 1)
        return self.world_size // (self.stages or 1)


def places_of(settings: Mapping[str, str], largest_rank: int) -> Places:
    """Return what the arguments of a job say of its shape."""
    told = number_of(settings, "world_size")
    size = max(told or 0, largest_rank + 1)
    stages = number_of(settings, "pipeline_model_parallel_size")
    tensor = number_of(settings, "tensor_model_parallel_size")
    if stages and size % stages:
        stages = None
    if tensor and size % tensor:
        tensor = None
    return Places(
        world_size=size, stages=stages, tensor=tensor,
        data_outside=settings.get("use_tp_pp_dp_mapping") == "True",
    )  # fmt: skip


def stages_by_timers(by_rank: Mapping[str, Mapping[int, float]], size: int) -> int | None:
    """Return the number of stages that the timers of receives tell, None where they do not.

    A rank whose timer never ran is not printed: those of the first stage receive no forward.
    """
    receiving = by_rank.get("forward-recv")
    if not receiving:
        return None
    first = [rank for rank in range(size) if rank not in receiving]
    if not first or first != list(range(len(first))) or size % len(first):
        return None
    return size // len(first)
