"""Healthy jobs of every kind; whoever is named in one is named falsely."""

from __future__ import annotations

from dataclasses import replace

from paceline_service.bench.detect.draw import FLAT, PARALLEL, draw_layout, draw_noise, pick
from paceline_service.bench.detect.families import Builder, Rng
from paceline_service.bench.detect.scenario import Scenario
from paceline_service.bench.detect.simulate.faults import Control
from paceline_service.bench.detect.simulate.layout import Layout
from paceline_service.bench.detect.simulate.noise import Noise
from paceline_service.bench.detect.simulate.spec import JobSpec

ANY = FLAT + PARALLEL


def _healthy(
    family: str, rng: Rng, seed: int, *, control: Control | None = None, steps: int = 300,
    layouts: tuple[Layout, ...] = ANY, noise: Noise | None = None,
    verdicts: tuple[str, ...] = ("healthy",), comm_scale: float = 1.0,
) -> Scenario:  # fmt: skip
    layout = draw_layout(rng, layouts)
    spec = JobSpec(
        layout=layout, steps=steps, seed=seed, micro_batches=2 * layout.pp,
        noise=noise or draw_noise(rng), control=control or Control(), comm_scale=comm_scale,
        shared_clocks=bool(rng.random() < 0.7), release_noise_s=pick(rng, 0.0001, 0.0003),
        telemetry=bool(rng.random() < 0.2),
    )  # fmt: skip
    return Scenario(family=family, seed=seed, spec=spec, verdicts=verdicts)


def plain(rng: Rng, seed: int) -> Scenario:
    """No fault, nothing special."""
    return _healthy("plain", rng, seed)


def warm_up(rng: Rng, seed: int) -> Scenario:
    """The first steps compile, longer on some ranks than on others, and one later step too."""
    control = Control(
        warm_up_steps=int(rng.integers(2, 16)), warm_up_ratio=pick(rng, 3, 8, 20),
        recompile_step=int(rng.integers(80, 200)),
    )  # fmt: skip
    return _healthy("warm_up", rng, seed, control=control)


def evaluation(rng: Rng, seed: int) -> Scenario:
    """An evaluation every so many steps, its shards a little uneven."""
    control = Control(eval_every=int(rng.integers(20, 80)), eval_ratio=pick(rng, 1, 3))
    return _healthy("evaluation", rng, seed, control=control)


def checkpoint(rng: Rng, seed: int) -> Scenario:
    """A checkpoint every so many steps, written by rank 0 or by everybody."""
    control = Control(
        checkpoint_every=int(rng.integers(30, 100)), checkpoint_ratio=pick(rng, 1, 3),
        checkpoint_rank=int(pick(rng, -1, 0)),
    )  # fmt: skip
    return _healthy("checkpoint", rng, seed, control=control)


def resize(rng: Rng, seed: int) -> Scenario:
    """Ranks leave, and come back later."""
    layout = Layout(dp=int(pick(rng, 8, 16)), node_size=4)
    away = int(rng.integers(80, 120)), layout.dp - int(pick(rng, 1, 2, 4))
    back = int(rng.integers(180, 220)), layout.dp
    return _healthy("resize", rng, seed, control=Control(resize=(away, back)), layouts=(layout,))


def sequences(rng: Rng, seed: int) -> Scenario:
    """Sequences differ in length: the slow replica is another one in each step."""
    control = Control(sequence_cv=pick(rng, 0.1, 0.2, 0.3))
    noise = replace(draw_noise(rng), jitter=pick(rng, 0.005, 0.01))
    layouts = (*FLAT, *PARALLEL[:3])
    return _healthy(
        "sequences", rng, seed, control=control, noise=noise, layouts=layouts,
        verdicts=("imbalance",),
    )  # fmt: skip


def comm_bound(rng: Rng, seed: int) -> Scenario:
    """Communication takes longer than computing, and nobody is to blame for it."""
    noise = draw_noise(rng, (0.005, 0.01, 0.02))
    return _healthy(
        "comm_bound", rng, seed, noise=noise, layouts=FLAT[:3], comm_scale=pick(rng, 40, 60),
        verdicts=("communication_bound",),
    )  # fmt: skip


def long_context(rng: Rng, seed: int) -> Scenario:
    """Long contexts: time varies by 9 to 14 % from step to step."""
    noise = Noise(
        jitter=float(rng.uniform(0.09, 0.14)), tail="normal", autocorrelation=0.2,
        spread=pick(rng, 0.002, 0.007, 0.017), common=0.026,
    )  # fmt: skip
    return _healthy("long_context", rng, seed, noise=noise, verdicts=("healthy", "imbalance"))


HEALTHY: dict[str, Builder] = {
    "plain": plain, "warm_up": warm_up, "evaluation": evaluation, "checkpoint": checkpoint,
    "resize": resize, "sequences": sequences, "comm_bound": comm_bound,
    "long_context": long_context,
}  # fmt: skip
