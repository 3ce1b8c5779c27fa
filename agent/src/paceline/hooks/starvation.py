"""A thread that is ready and cannot run: no core for it, or another holds the interpreter's lock.

Linux counts for each thread how long it ran and how long it stood in the run queue
(``/proc/<pid>/task/<tid>/schedstat``). Where it does not, nothing is recorded here: a late
thread alone does not tell whether the training thread was not simply busy.
"""

from __future__ import annotations

import os
import time
from threading import get_native_id
from typing import NamedTuple

from paceline.clock import mono_ns
from paceline.hooks.recorder import Recorder
from paceline.vocabulary import Phase, RecordKind

QUEUED_NS = 1_000_000
"""Less time in the run queue between two boundaries is the scheduler's ordinary work."""
LOCKED_NS = 5_000_000
"""After so long a Python thread must give the lock away (``sys.getswitchinterval``)."""
LOOK_EVERY_NS = 200_000_000
"""A look costs some 60 us of the poller's time."""
LOOK_NS = 1_000_000
"""How long a look at the lock sleeps; what it is late beyond that, it could not run."""
NO_CORE = 1
NO_LOCK = 2
"""What the ``seq`` of a STARVED record says."""
_PHASE = int(RecordKind.PHASE)
_STARVED = int(Phase.STARVED)


class Spent(NamedTuple):
    """How long a thread ran and how long it stood in the run queue, since it began."""

    ran_ns: int
    queued_ns: int


class ThreadTimes:
    """What the scheduler tells of one thread of this process; None where it tells nothing."""

    def __init__(self, native_id: int) -> None:
        self.native_id = native_id
        try:
            path = f"/proc/self/task/{native_id}/schedstat"
            self._file: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = None

    def read(self) -> Spent | None:
        """Return what the thread has spent until now."""
        file = self._file
        if file is None:
            return None
        try:
            ran, queued = os.pread(file, 64, 0).split()[:2]
            return Spent(int(ran), int(queued))
        except (OSError, ValueError):  # the thread has ended
            return None

    def close(self) -> None:
        """Let go of the file; harmless when repeated."""
        # Two threads may come here. Closing twice would close somebody else's file.
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


class RunQueue:
    """Says at each boundary of a phase how long the training thread had no core since the last.

    The length of such a record is measured; where within the phase it lay is not, so it is put
    at its end. Runs in the training thread: one read of a file of /proc, about a microsecond.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._times: ThreadTimes | None = None
        self._before: Spent | None = None
        self._before_ns = 0

    def boundary(self, now_ns: int) -> None:
        """A phase of the training thread ends or begins now."""
        recorder = self._recorder
        if not recorder.detail or not recorder.on:
            self._before = None
            return
        native_id = recorder.training_thread_id
        if not native_id:
            return
        times = self._times
        if times is None or times.native_id != native_id:
            self.close()
            times = self._times = ThreadTimes(native_id)
        spent, before = times.read(), self._before
        since_ns, self._before, self._before_ns = self._before_ns, spent, now_ns
        if spent is None or before is None:
            return
        # The two are read a moment apart, and what came before the last boundary is another's.
        queued_ns = min(spent.queued_ns - before.queued_ns, now_ns - since_ns)
        if queued_ns >= QUEUED_NS:
            recorder.writer.record(
                _PHASE, _STARVED, 0, NO_CORE, recorder.clock.present_step, -1, 0,
                now_ns - queued_ns, now_ns,
            )  # fmt: skip

    def close(self) -> None:
        """Let go of the file."""
        times, self._times, self._before = self._times, None, None
        if times is not None:
            times.close()


class LockProbe:
    """Looks from the poller's thread how long the interpreter's lock is not to be had.

    Each look is one sample. It counts only if the training thread did not run meanwhile (it
    may hold the lock itself, or need none), nor stood in the run queue, which RunQueue tells.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._mine: ThreadTimes | None = None
        self._training: ThreadTimes | None = None
        self._looked_ns = 0

    @property
    def wanted(self) -> bool:
        """Whether looks are to be taken now."""
        return self._recorder.detail and self._recorder.training_thread_id != 0

    def look(self) -> None:
        """Sleep a moment, and record by how much the wake-up was late for want of the lock."""
        recorder, start_ns = self._recorder, mono_ns()
        if start_ns - self._looked_ns < LOOK_EVERY_NS:
            return
        self._looked_ns = start_ns
        if self._mine is None:
            self._mine = ThreadTimes(get_native_id())
        if self._training is None or self._training.native_id != recorder.training_thread_id:
            self._close_training()
            self._training = ThreadTimes(recorder.training_thread_id)
        mine, training = self._mine.read(), self._training.read()
        if mine is None or training is None:
            return
        start_ns = mono_ns()
        time.sleep(LOOK_NS / 1e9)
        end_ns = mono_ns()
        late_ns = end_ns - start_ns - LOOK_NS
        if late_ns < LOCKED_NS:
            return
        mine_after, training_after = self._mine.read(), self._training.read()
        if mine_after is None or training_after is None:
            return
        locked_ns = late_ns - (mine_after.queued_ns - mine.queued_ns)
        told_ns = sum(training_after) - sum(training)
        if locked_ns >= LOCKED_NS and told_ns < locked_ns / 2 and recorder.on:
            recorder.writer.record(
                _PHASE, _STARVED, 0, NO_LOCK, recorder.clock.present_step, -1, 0,
                end_ns - locked_ns, end_ns,
            )  # fmt: skip

    def close(self) -> None:
        """Let go of the files."""
        if self._mine is not None:
            self._mine.close()
        self._mine = None
        self._close_training()

    def _close_training(self) -> None:
        if self._training is not None:
            self._training.close()
        self._training = None
