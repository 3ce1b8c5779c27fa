"""What a format is to the rest: how its files begin, and what reads or judges them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.dataclass import dataclass
from paceline_service.importers.faults import Faults

if TYPE_CHECKING:
    from paceline_service.importers.answer import Answer
    from paceline_service.importers.log import EventLog
    from paceline_service.importers.offline import See


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One format: ``read`` for one of timed records, ``judge`` for one that has none.

    Attributes:
        name: as a reader knows it, for messages.
        begins: whether a file with these first bytes (unpacked, ``HEAD_BYTES``) is one.
        holds: whether one that begins like no format is; for logs whose first pages tell nothing.
        plain: whether a file of it cannot be read while it is packed.
        read: the timed records of files of it; ``faults`` holds what is known of them already.
        judge: the report on files of a format whose records have no times.
    """

    name: str
    begins: Callable[[bytes], bool]
    holds: Callable[[Path], bool] | None = None
    plain: bool = False
    read: Callable[[Sequence[Path], Faults], EventLog] | None = None
    judge: Callable[[Sequence[Path], Faults], Answer] | None = None

    def analyze(self, paths: Sequence[Path], faults: Faults, see: See | None = None) -> Answer:
        """Return the answer for files of this format; the caller closes its ``log``.

        Raises:
            InputError: none of them can be used, or they do not belong together.
        """
        if self.read is None:
            assert self.judge is not None
            return self.judge(paths, faults)
        log = self.read(paths, faults)
        try:
            from paceline_service.importers.offline import answer_log  # heavy: not before

            log.format = self.name
            return answer_log(log, see)
        except BaseException:
            log.close()
            raise
