"""Runs a simulated job, some steps at a time."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import numpy as np

from paceline.vocabulary import Phase, RecordKind
from paceline_service.bench.detect.simulate.engine import Engine
from paceline_service.bench.detect.simulate.layout import GroupInfo, IntArray
from paceline_service.bench.detect.simulate.pipeline import pipeline_step
from paceline_service.bench.detect.simulate.programs import flat_step
from paceline_service.bench.detect.simulate.spec import NS, Chunk, FloatArray, JobSpec
from paceline_service.bench.detect.simulate.telemetry import sample

FORMING_S = 5.0
"""A job that is resized stands still for so long while its groups are made again."""


class Simulation:
    """One job; ``chunks`` may be run once.

    Args:
        spec: the job.
        emit: whether records are wanted; without them only the times of its steps are.
    """

    def __init__(self, spec: JobSpec, *, emit: bool = True) -> None:
        self.spec = spec
        self.engine = Engine(spec, emit=emit)
        self._sequence = np.random.default_rng([spec.seed, 1])
        self._uneven = np.random.default_rng([spec.seed, 2])

    @property
    def groups(self) -> list[GroupInfo]:
        """All groups so far, by the number that records name."""
        return self.engine.infos

    @property
    def clock_domains(self) -> IntArray:
        """Number of each rank's clock, (R,)."""
        return self.engine.clocks.domain

    def chunks(self, steps_each: int = 16) -> Generator[Chunk, int | None, None]:
        """Run the job; whoever reads may change ``steps_each`` by ``send``."""
        step, engine = 0, self.engine
        while step < self.spec.steps:
            first, left = step, self._resize(step)
            samples, ended, own = [], [], []
            while step < self.spec.steps and step - first < steps_each:
                if step > first and any(step == at for at, _ in self.spec.control.resize):
                    break
                before = engine.now[engine.layout.ranks].max()
                self._run(step)
                ended.append(engine.now[engine.layout.ranks].max() - before)
                own.append(engine.self_ns)
                if self.spec.telemetry and engine.emitter.enabled:
                    samples += sample(engine)
                step += 1
            wanted = yield Chunk(
                first_step=first, steps=step - first, columns=engine.emitter.take(),
                step_ns=np.array(ended), self_ns=np.stack(own), samples=samples, left=left,
            )  # fmt: skip
            steps_each = wanted or steps_each

    def step_times_ns(self) -> FloatArray:
        """Run the whole job and return the duration of its steps, (S,)."""
        return np.concatenate([chunk.step_ns for chunk in self.chunks(1024)])

    def _run(self, step: int) -> None:
        engine, control = self.engine, self.spec.control
        engine.begin(step)
        self._lengthen(step)
        ranks = engine.layout.ranks
        began = engine.now[ranks].copy()
        self._before_work(step)
        if engine.layout.pp > 1:
            pipeline_step(engine)
        else:
            flat_step(engine)
        if control.eval_every and step % control.eval_every == control.eval_every - 1:
            uneven = 1 + 0.05 * self._uneven.standard_normal(len(ranks))
            with engine.phase(Phase.FORWARD, ranks):
                engine.spend(ranks, control.eval_ratio * engine.spec.phase_ns.sum() * uneven)
        if control.checkpoint_every and step % control.checkpoint_every == (
            control.checkpoint_every - 1
        ):
            self._checkpoint()
        engine.emitter.span(RecordKind.STEP, 0, step, ranks, began, engine.now[ranks])

    def _lengthen(self, step: int) -> None:
        """Sequences differ between replicas: ranks of one replica share them."""
        cv = self.spec.control.sequence_cv
        if cv <= 0:
            return
        layout = self.engine.layout
        log_sd = np.sqrt(np.log1p(cv**2))
        length = np.exp(log_sd * self._sequence.standard_normal(layout.dp) - log_sd**2 / 2)
        replica = np.tile(np.repeat(np.arange(layout.dp), layout.tp), layout.pp)
        for phase in (Phase.FORWARD, Phase.BACKWARD):
            self.engine.factor[phase, layout.ranks] *= length[replica]

    def _before_work(self, step: int) -> None:
        control, engine = self.spec.control, self.engine
        ranks = engine.layout.ranks
        compiles = step < control.warm_up_steps or (step > 0 and step == control.recompile_step)
        if compiles:
            left = 1 - step / control.warm_up_steps if step < control.warm_up_steps else 1.0
            longer = control.warm_up_ratio * left * self._uneven.uniform(0.5, 1, len(ranks))
            engine.spend(ranks, longer * engine.spec.phase_ns.sum())

    def _checkpoint(self) -> None:
        control, engine = self.spec.control, self.engine
        everybody = engine.layout.ranks
        writers = everybody if control.checkpoint_rank < 0 else np.array([control.checkpoint_rank])
        longer = self._uneven.lognormal(0, 0.2, len(everybody))[: len(writers)]
        with engine.phase(Phase.CHECKPOINT, writers):
            engine.spend(writers, control.checkpoint_ratio * engine.spec.phase_ns.sum() * longer)

    def _resize(self, step: int) -> tuple[int, ...]:
        """Form the groups anew where the job is resized here; returns who left."""
        sizes = [size for at, size in self.spec.control.resize if at == step and step]
        if not sizes:
            return ()
        engine = self.engine
        was = set(map(int, engine.layout.ranks))
        live = tuple(range(sizes[0]))
        engine.now[:] = engine.now[list(was)].max() + FORMING_S * NS
        engine.form(replace(self.spec.layout, dp=sizes[0], live=live))
        return tuple(sorted(was - set(live)))
