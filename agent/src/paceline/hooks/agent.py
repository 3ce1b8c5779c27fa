"""The agent of one training process: armed before torch is there, at work once ranks are known."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any

from paceline import __version__
from paceline.clock import mono_ns
from paceline.hooks.imports import PostImportFinder

if TYPE_CHECKING:
    from paceline.hooks.recorder import Recorder
    from paceline.settings import AgentSettings

C10D = "torch.distributed.distributed_c10d"
RECENT_NS = 1_000_000_000
REST_S = 0.05
"""A thread of Gloo needs microseconds, on a crowded machine a turn of the scheduler."""
log = logging.getLogger("paceline")


class Agent:
    """Waits for the default process group, then makes the ring and installs the hooks.

    Everything but the finder of imports is made only then: before, the process may turn out
    to be no rank at all, and torch is not wholly imported.
    """

    def __init__(self, job: str | None = None) -> None:
        self.job = job
        self.recorder: Recorder | None = None
        self._finder = PostImportFinder()
        self._collectives: Any = None
        self._poller: Any = None
        self._patches: Any = None
        self._world_patches: Any = None
        self._groups: Any = None
        self._lock = threading.RLock()
        self._closed = False
        self._abandoned = False

    def arm(self, module: ModuleType | None = None) -> None:
        """Wait for torch.distributed, or begin at once where it is imported.

        Args:
            module: it, where it is just being imported and nothing is to be waited for.
        """
        if module is not None:
            self._attach(module)
        else:
            self._finder.when_imported(C10D, self._attach)

    def close(self) -> None:
        """Stop the poller, write what is open, put everything back; harmless when repeated."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._finder.forget()
        if self._poller is not None:
            self._poller.stop()
        if self.recorder is not None:
            self.recorder.close()
        for part in (self._patches, self._world_patches):
            if part is not None:
                part.undo()
        if self._collectives is not None:
            self._collectives.uninstall()

    def leave(self) -> None:
        """Close, and let Gloo's threads come to rest before the interpreter is taken down.

        A thread of Gloo drops its last Work a moment after it woke the waiter. Tensors that
        Python has seen (torch's own Python API shows them, and so do our kernels) need the
        interpreter's lock for that; once the interpreter ends, asking for it aborts the process.
        """
        if self._abandoned:
            return
        self.close()
        if self.recorder is not None:
            newest_ns = self.recorder.pending.newest_start_ns
            if newest_ns and mono_ns() - newest_ns < RECENT_NS:
                time.sleep(REST_S)
        if self._collectives is not None:
            self._collectives.leave()

    def abandon(self) -> bool:
        """In a forked child do nothing any more: ring, lock and thread are the parent's.

        Returns:
            False where the parent is no rank: then the child may become one.
        """
        self._lock = threading.RLock()  # another thread may have held it
        if self.recorder is None and not self._closed:
            return False
        self._closed = self._abandoned = True
        self._finder.forget()
        if self.recorder is not None:
            self.recorder.on = False
        return True

    def _attach(self, module: ModuleType) -> None:
        if self._groups is not None:
            return
        from paceline.hooks.groups import Groups
        from paceline.hooks.patches import Patches

        c10d: Any = module
        self._groups = Groups(module, self._describe)
        self._world_patches = Patches()

        def make(original: Any) -> Any:
            def _update_default_pg(pg: Any) -> Any:
                result = original(pg)
                if pg is not None and not self._closed:
                    self._world_began(c10d)
                return result

            return _update_default_pg

        self._world_patches.wrap(module, "_update_default_pg", make)
        if c10d._world.default_pg is not None:
            self._world_began(c10d)

    def _world_began(self, c10d: Any) -> None:
        try:
            with self._lock:
                pg = c10d._world.default_pg
                rank, world_size = pg.rank(), pg.size()
                if rank < 0:
                    return
                self._groups.world_began()
                if self.recorder is None:
                    try:
                        self._begin(c10d, rank, world_size)
                    except BaseException:
                        self.close()  # rather nothing than hooks without their poller
                        raise
                elif (rank, world_size) != (self._identity.rank, self._identity.world_size):
                    self._renew(rank, world_size)
        except Exception as error:
            log.warning("nothing can be captured in this process: %s", error, exc_info=True)

    def _renew(self, rank: int, world_size: int) -> None:
        assert self.recorder is not None
        try:
            writer = self._new_ring(rank, world_size)
        except BaseException:
            self.recorder.close()  # rather nothing than records under a rank that is another's now
            raise
        self.recorder.renew(writer)
        self._groups.forget()

    @property
    def _identity(self) -> Any:
        assert self.recorder is not None
        return self.recorder.writer.identity

    def _settings(self) -> AgentSettings:
        from paceline.settings import AgentSettings

        return AgentSettings.from_env(os.environ, job=self.job)

    def _new_ring(self, rank: int, world_size: int) -> Any:
        from paceline.clock import boot_id, time_namespace
        from paceline.hooks.facts import process_facts
        from paceline.ring.writer import RingWriter, new_identity
        from paceline.settings import PLUGIN_ENV, RUN_MARK

        settings = self._settings()
        identity = new_identity(
            job=settings.job,
            run_id=settings.run_id,
            attempt=settings.attempt,
            rank=rank,
            local_rank=_spawned() if settings.local_rank is None else settings.local_rank,
            world_size=world_size,
            node=settings.node,
            boot_id=boot_id(),
            time_namespace=time_namespace(),
            producer="hooks",
        )
        writer = RingWriter(settings.runtime_dir, identity)
        if os.environ.get(PLUGIN_ENV):  # else there is none, and nothing to be imported for it
            from paceline.plugin import identify

            identify(identity, settings.runtime_dir)
        if os.environ.get("PACELINE_INJECT") == "1":
            with contextlib.suppress(OSError, ValueError):  # only a sign for `paceline run`
                (settings.runtime_dir / f"{RUN_MARK}{settings.run_id}").touch(mode=0o600)
        import torch

        versions = {"paceline": __version__, "torch": torch.__version__}
        versions["python"] = sys.version.split()[0]
        versions["level"] = settings.level
        writer.meta({"info": {**versions, **process_facts(os.environ)}})
        return writer

    def _begin(self, c10d: Any, rank: int, world_size: int) -> None:
        import torch

        from paceline.hooks.causes import install_causes
        from paceline.hooks.choice import recorder_and_hooks
        from paceline.hooks.patches import Patches
        from paceline.hooks.phases import PhaseHooks
        from paceline.hooks.poller import Poller

        settings = self._settings()
        for problem in settings.problems:
            log.warning("%s", problem)
        writer = self._new_ring(rank, world_size)
        recorder, self._collectives = recorder_and_hooks(
            torch, c10d, writer, self._groups, settings.level
        )
        self.recorder = recorder
        self._patches = Patches(_compiler_skip(torch))
        # At every level: a higher one may be asked for while the job runs.
        PhaseHooks(torch, recorder, self._patches).install(self._finder.when_imported)
        install_causes(recorder, self._patches)
        if settings.replica_check_steps:
            self._check_replicas(torch, recorder, settings.replica_check_steps)
        if torch.version.cuda is not None:  # else the modules would only take memory
            try:
                from paceline.hooks.device_start import start_device_times

                start_device_times(torch, c10d, recorder, self._patches, settings.device_timers)
            except Exception as error:
                recorder.failed(error)
        self._finder.when_imported("torch._dynamo.trace_rules", _leave_us_alone)
        self._poller = Poller(recorder)
        self._poller.start()
        _close_at_exit(self)

    def _check_replicas(self, torch: Any, recorder: Recorder, every: int) -> None:
        from paceline import telemetry as names
        from paceline.hooks.replica_sets import ReplicaSets
        from paceline.hooks.replicas import ReplicaCheck

        reasons: list[str] = []

        def tell(why: str) -> None:
            told = names.LEFT_OUT_BETWEEN.join([*reasons, why])
            if why not in reasons and len(told) <= names.MAX_LEFT_OUT_CHARS:
                reasons.append(why)
                recorder.writer.meta({"info": {names.REPLICA_LEFT_OUT: told}})

        sets = ReplicaSets(self._patches, tell, recorder.guarded)
        sets.install(self._finder.when_imported)
        how = "every step" if every == 1 else f"every {every} steps"
        recorder.writer.meta({"info": {names.REPLICA_CHECK: how}})
        recorder.replicas = ReplicaCheck(torch, recorder, every, sets)

    def _describe(self, entry: dict[str, object]) -> None:
        if self.recorder is not None:
            self.recorder.writer.meta(entry)


_agent: Agent | None = None
_fork_hooked = False


def arm(job: str | None = None, module: ModuleType | None = None) -> Agent | None:
    """Instrument this process, once; None where ``PACELINE_DISABLE`` says no.

    Args:
        job: the job's name; by default the environment tells it.
        module: torch's ``distributed_c10d``, where its import has not ended yet.
    """
    global _agent, _fork_hooked
    from paceline.settings import is_disabled

    # The token is the sidecar's. A training process, and all it starts, must not have it.
    os.environ.pop("PACELINE_TOKEN", None)
    if is_disabled(os.environ):
        return None
    if _agent is None or _agent._closed:
        _agent = Agent(job)
        if not _fork_hooked:
            os.register_at_fork(after_in_child=_abandon)
            _fork_hooked = True
        _agent.arm(module)
    elif job is not None and _agent.recorder is None and "PACELINE_INJECT" not in os.environ:
        _agent.job = job  # under `paceline run` the launcher, who asks for the report, names it
    return _agent


def _abandon() -> None:
    global _agent
    if _agent is not None and _agent.abandon():
        _agent = None


def _spawned() -> int:
    """Return the local rank of a process that tells none: its place among those spawned, or 0."""
    if "multiprocessing.process" not in sys.modules:
        return 0
    import multiprocessing.process

    place: tuple[int, ...] = getattr(multiprocessing.process.current_process(), "_identity", ())
    return max(place[-1] - 1, 0) if place else 0


def _close_at_exit(agent: Agent) -> None:
    atexit.register(agent.leave)
    if "multiprocessing.process" in sys.modules:
        import multiprocessing.process
        import multiprocessing.util

        if multiprocessing.process.parent_process() is not None:
            # Children of multiprocessing leave without running atexit.
            multiprocessing.util.Finalize(agent, Agent.leave, args=(agent,), exitpriority=10)


_untraced: set[str] = set()
_HIDDEN = ("paceline.hooks", "paceline.ring", "paceline.clock")
"""Packages with all that is in them. Few: each makes torch compile an expression anew, and Python
keeps them all. ``paceline.forward`` is none of them: models that are compiled whole are traced
through it."""


def _leave_us_alone(trace_rules: ModuleType) -> None:
    """Tell torch.compile to trace none of the hooks: it would compile them with the job."""
    rules: Any = trace_rules
    try:
        for name in _HIDDEN:
            if name not in _untraced:
                _untraced.add(name)
                rules.add(name)
    except Exception as error:
        log.warning("torch.compile cannot be told to leave the hooks alone: %s", error)


def _compiler_skip(torch: Any) -> Any:
    try:
        return torch._C._dynamo.eval_frame.skip_code
    except AttributeError:
        return None
