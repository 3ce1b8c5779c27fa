"""Seeded jobs in the shape of the collector's answers, for tests of the page."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

PHASES = ("host", "input", "forward", "backward", "optimizer", "copy", "checkpoint")
BASE_PHASE_MS = np.array([2.5, 4.0, 31.0, 62.0, 9.0, 0.0, 0.0])
COMM_MS = 11.0
STEP_NS = 130_000_000
"""About how long a step is."""
GAP_NS = 400_000
"""Between two steps."""
DETECTION_DELAY_STEPS = 12
SILENT_NS = 42 * 1_000_000_000

IntArray = NDArray[np.int64]
_EXPECTED = (
    "steps", "observed_step_s", "expected_step_s", "expected_step_interval_s", "gap_s",
    "gap_ratio", "compute_s", "communication_s", "barrier_s", "gap_parts_s",
    "communication_modelled_ratio", "communication_reason",
)  # fmt: skip

HANG: dict[str, Any] = {
    "kind": "hang", "ranks": [5], "nodes": ["node-001"], "cause": "host", "phase": None,
    "first_step": 239, "last_step": None, "slowdown": None, "recoverable_ratio": None,
    "wasted_gpu_s": 1_309.0, "confidence": None,
    "collective": {"group": "dp0", "op": "all_reduce", "seq": 1443, "age_s": 187.0},
    "evidence": [
        "rank 5 never issued all_reduce number 1443 of group dp0, which peers wait in (its host "
        "did not get that far: enqueue lag)",
        "7 ranks wait for it, directly or through others, the longest for 187.0 s",
    ],
    "action": "py-spy dump --pid PID  # on node-001, of the process of rank 5: what it does",
}  # fmt: skip


@dataclass(slots=True)
class PageJob:
    """One synthetic job: ``slow_ranks`` take ``slow_ratio`` longer in ``slow_phase``."""

    name: str
    ranks: int
    steps: int
    ranks_per_node: int = 8
    slow_ranks: tuple[int, ...] = ()
    slow_phase: str = "backward"
    slow_ratio: float = 0.6
    slow_from: int = 60
    slow_until: int = 1 << 30
    jitter: float = 0.02
    seed: int = 7
    attempt: int = 1
    state: str = "running"
    verdict: str = ""
    dropped: dict[str, int] = field(default_factory=dict)
    missing_ranks: tuple[int, ...] = ()
    action: str | None = None
    finding: dict[str, Any] = field(default_factory=dict)
    """Replaces fields of the finding; with ``kind`` it is there whoever is slow."""
    earlier_incidents: int = 0
    incident: dict[str, Any] = field(default_factory=dict)
    """Replaces fields of its incident."""
    silent_ranks: tuple[int, ...] = ()
    pending_s: float | None = None
    raw_from: int = 0
    """Of steps before it no raw frames are kept, so that there is no timeline."""
    started_wall_ns: int = 0
    _starts_ns: list[int] = field(default_factory=lambda: [0])
    _report: dict[str, Any] = field(default_factory=dict)
    _reported_steps: int = -1

    def __post_init__(self) -> None:
        self.started_wall_ns = time.time_ns() - self.start_of(self.steps)

    def start_of(self, step: int) -> int:
        """Return when ``step`` began, ns since the job did."""
        while len(self._starts_ns) <= step:
            phase_ns, comm_ns, _ = self.step(len(self._starts_ns) - 1)
            length_ns = int(phase_ns.sum(axis=1).max()) + comm_ns
            self._starts_ns.append(self._starts_ns[-1] + length_ns + GAP_NS)
        return self._starts_ns[step]

    def step(self, step: int) -> tuple[IntArray, int, IntArray]:
        """Return (phase self times (R, 5), exposed communication, waits (R,)) of ``step``, ns."""
        random = np.random.default_rng((self.seed, step))
        noise = random.normal(1.0, self.jitter, (self.ranks, len(PHASES)))
        phases = BASE_PHASE_MS * np.clip(noise, 0.7, 1.5) * random.normal(1.0, 0.01)
        if self.slow_from <= step < self.slow_until:
            phases[list(self.slow_ranks), PHASES.index(self.slow_phase)] *= 1 + self.slow_ratio
        phase_ns = (phases * 1e6).astype(np.int64)
        self_ns = phase_ns.sum(axis=1)
        comm_ns = int(COMM_MS * 1e6 * random.normal(1.0, 0.05))
        return phase_ns, comm_ns, self_ns.max() - self_ns

    def nodes(self) -> dict[str, str]:
        """Return the node of every rank, keyed as JSON keys it."""
        return {str(r): f"node-{r // self.ranks_per_node:03d}" for r in range(self.ranks)}

    def columns(
        self, first: int, last: int, ranks: list[int] | None, phases: bool
    ) -> dict[str, Any]:
        """Return steps ``first``..``last`` inclusive as the columnar object of the API."""
        chosen = list(range(self.ranks)) if ranks is None else ranks
        seen = [r not in self.missing_ranks for r in chosen]
        out: dict[str, Any] = {
            "job": self.name, "attempt": self.attempt, "ranks": chosen, "phases": list(PHASES),
            "steps": [], "start_wall_ns": [], "duration_ns": [], "slowest_rank": [],
            "self_ns": [], "wait_ns": [], "comm_ns": [],
        }  # fmt: skip
        if phases:
            out["phase_self_ns"] = []
        for step in range(max(first, 0), min(last, self.steps - 1) + 1):
            phase_ns, comm_ns, wait_ns = self.step(step)
            self_ns = phase_ns.sum(axis=1)
            out["steps"].append(step)
            out["start_wall_ns"].append(self.started_wall_ns + self.start_of(step))
            out["duration_ns"].append(int(self_ns.max()) + comm_ns)
            out["slowest_rank"].append(int(self_ns.argmax()))
            out["self_ns"].append(_seen(self_ns[chosen].tolist(), seen))
            out["wait_ns"].append(_seen(wait_ns[chosen].tolist(), seen))
            out["comm_ns"].append(_seen([comm_ns] * len(chosen), seen))
            if phases:
                out["phase_self_ns"].append(_seen(phase_ns[chosen].tolist(), seen))
        return out

    def row(self) -> dict[str, Any]:
        """Return the job's row of ``GET /v1/jobs``."""
        report = self.report()
        return {
            "job": self.name, "run_id": f"run-{self.attempt}", "attempt": self.attempt,
            "launch_attempt": 0,
            "world_size": self.ranks, "ranks_seen": self.ranks - len(self.missing_ranks),
            "state": self.state, "first_seen_wall_ns": self.started_wall_ns,
            "last_seen_wall_ns": self.started_wall_ns + self.start_of(self.steps),
            "steps": self.steps,
            "verdict": report["verdict"], "headline": report["job"]["headline"],
            "slowdown": report["slowdown"],
        }  # fmt: skip

    def report(self) -> dict[str, Any]:
        """Return the report of the steps so far."""
        if self._reported_steps != self.steps:
            self._report, self._reported_steps = self._make_report(), self.steps
        return self._report

    def _make_report(self) -> dict[str, Any]:
        """Return ``paceline.report/1`` as the collector serves it, from a sample of the steps."""
        sample = sorted({*range(max(0, self.steps - 40), self.steps), *range(0, self.steps, 10)})
        self_ns = np.array([self.step(s)[0].sum(axis=1) for s in sample]).reshape(-1, self.ranks)
        comm_ns = np.array([self.step(s)[1] for s in sample], dtype=np.int64)
        flagged = bool(self.slow_ranks) and self.steps > self.slow_from + DETECTION_DELAY_STEPS
        flagged |= "kind" in self.finding
        kind = self.finding.get("kind", "straggler")
        verdict = self.verdict or (kind if flagged else "healthy")
        if self.steps < 20 and not self.verdict and not flagged:
            verdict = "insufficient_evidence"
        slowest = self_ns.max(axis=1, initial=0)
        wait_ns = slowest[:, None] - self_ns
        duration_ns = slowest + comm_ns
        others = np.delete(self_ns, list(self.slow_ranks), axis=1).max(axis=1, initial=0)
        slowdown = float(duration_ns.sum() / max(1, (others + comm_ns).sum())) if flagged else 1.02
        scale = self.steps / max(1, len(sample))
        lost_s = float((duration_ns - others - comm_ns).sum()) * scale * self.ranks / 1e9
        last = np.bincount(self_ns.argmax(axis=1), minlength=self.ranks)
        caused = np.array([wait_ns[self_ns.argmax(axis=1) == r].sum() for r in range(self.ranks)])
        blamed = np.zeros(self.ranks)
        if flagged and self.slow_ranks:
            blamed[list(self.slow_ranks)] = caused.sum() / len(self.slow_ranks)
        else:
            blamed = caused
        base: dict[str, Any] = {"links": [], "period_steps": None}
        if self.slow_ranks:
            base = self._finding(slowdown, lost_s)
        findings = [base | self.finding] if flagged else []
        causes = {one["cause"]: one["wasted_gpu_s"] for one in findings if one["wasted_gpu_s"]}
        return {
            "schema": "paceline.report/1",
            "job": {
                "world_size": self.ranks, "ranks_observed": self.ranks - len(self.missing_ranks),
                "steps": self.steps, "collectives": self.steps * 6, "name": self.name,
                "attempt": self.attempt, "state": self.state,
                "headline": self._headline(verdict, slowdown),
            },
            "verdict": verdict,
            "slowdown": slowdown if verdict != "insufficient_evidence" else None,
            "idle_ratio": float(wait_ns.sum() / max(1, duration_ns.sum() * self.ranks)),
            "gamma": float(comm_ns.sum() * self.ranks / max(1, self_ns.sum())),
            "wasted_gpu_s": float(wait_ns.sum()) * scale / 1e9,
            "wasted_gpu_s_by_cause": causes,
            "findings": findings,
            "expected": self._expected(duration_ns, others, comm_ns, flagged),
            "calibration": {
                "compute": [], "transfers": [], "flops_per_step": None,
                "flops_per_s_per_rank": None, "flops_interval_per_s_per_rank": None,
            },
            "data": {
                "complete": not self.dropped and not self.missing_ranks, "dropped": self.dropped,
                "notes": ["rank 3 has sent nothing yet"] if self.missing_ranks else [],
            },
            "ranks": [
                {
                    "rank": r, "self_ns": int(self_ns[:, r].sum() * scale),
                    "wait_ns": int(wait_ns[:, r].sum() * scale),
                    "exposed_comm_ns": int(comm_ns.sum() * scale),
                    "caused_wait_ns": int(caused[r] * scale),
                    "blamed_wait_ns": int(blamed[r] * scale),
                    "last_arriver": int(last[r] * scale),
                    "cause": findings[0]["cause"] if findings and r in self.slow_ranks else None,
                }
                for r in range(self.ranks)
                if r not in self.missing_ranks
            ],
        }  # fmt: skip

    def _expected(
        self, duration_ns: IntArray, others_ns: IntArray, comm_ns: IntArray, flagged: bool
    ) -> dict[str, Any]:
        """Return the block ``expected``: the slowest of the others sets the pace."""
        names = ("straggler", "network", "imbalance", "host", "slowdown", "unexplained")
        parts = dict.fromkeys(names, 0.0)
        if not self.steps:
            return {**dict.fromkeys(_EXPECTED), "reason": "no step was seen"}
        observed_s, comm_s = float(duration_ns.mean()) / 1e9, float(comm_ns.mean()) / 1e9
        expected_s = float(others_ns.mean()) / 1e9 + comm_s if flagged else 0.998 * observed_s
        parts["straggler" if flagged else "unexplained"] = observed_s - expected_s
        return {
            "steps": self.steps, "observed_step_s": observed_s, "expected_step_s": expected_s,
            "expected_step_interval_s": [0.995 * expected_s, 1.005 * expected_s],
            "gap_s": observed_s - expected_s, "gap_ratio": observed_s / expected_s - 1,
            "compute_s": 0.98 * (expected_s - comm_s), "communication_s": comm_s,
            "barrier_s": 0.02 * (expected_s - comm_s), "gap_parts_s": parts,
            "communication_modelled_ratio": 1.0, "communication_reason": None, "reason": None,
        }  # fmt: skip

    def rank_rows(self) -> dict[str, Any]:
        """Return the answer of ``GET /v1/jobs/{job}/ranks``."""
        nodes, row, ended = self.nodes(), self.row(), self.state == "ended"
        held_up_by = self.finding.get("ranks", ())
        rows = []
        for known in self.report()["ranks"]:
            rank = known["rank"]
            quiet_ns = SILENT_NS if rank in self.silent_ranks else 0
            extra = {
                "node": nodes[str(rank)], "step": self.steps - 1,
                "last_seen_wall_ns": row["last_seen_wall_ns"] - quiet_ns,
                "ended": "closed" if ended else "", "dropped": {} if rank else self.dropped,
                "versions": {"paceline": "0.1.0", "torch": "2.13.0", "python": "3.11.2"},
                "telemetry": None,
                "pending_s": None if rank in held_up_by else self.pending_s,
            }  # fmt: skip
            rows.append({**known, **extra})
        return {"ranks": rows, "next": None}

    def detail(self) -> dict[str, Any]:
        """Return the answer of ``GET /v1/jobs/{job}``."""
        row = self.row()
        group = {"name": "dp0", "ranks": f"0-{self.ranks - 1}", "epoch": 0, "mesh_dim": "dp"}
        attempt = {
            key: row[key]
            for key in (
                "attempt", "run_id", "launch_attempt", "first_seen_wall_ns", "state", "verdict"
            )
        }  # fmt: skip
        groups = [{**group, "backend": "gloo"}]
        return {**row, "attempts": [attempt], "groups": groups, "nodes": self.nodes()}

    def _headline(self, verdict: str, slowdown: float) -> str:
        if verdict == "straggler":
            who = f"rank {self.slow_ranks[0]}" if len(self.slow_ranks) == 1 else "node-042"
            return f"{who} is slow in {self.slow_phase}: it makes every step {slowdown:.2f}x"
        return {
            "healthy": "no rank sets the pace",
            "insufficient_evidence": f"{self.steps} steps are too few to tell",
            "hang": f"the job hangs: {len(self.finding.get('ranks', ()))} of its ranks hold it up",
        }.get(verdict, verdict)

    def _finding(self, slowdown: float, lost_s: float) -> dict[str, Any]:
        nodes = sorted({self.nodes()[str(r)] for r in self.slow_ranks})
        who = f"rank {self.slow_ranks[0]}" if len(self.slow_ranks) == 1 else nodes[0]
        excess_ms = BASE_PHASE_MS[PHASES.index(self.slow_phase)] * self.slow_ratio
        since = self.steps - self.slow_from
        return {
            "kind": "straggler", "ranks": list(self.slow_ranks), "nodes": nodes,
            "cause": "input" if self.slow_phase == "input" else "compute",
            "phase": self.slow_phase, "first_step": self.slow_from,
            "last_step": min(self.steps, self.slow_until) - 1,
            "slowdown": 1 + excess_ms / BASE_PHASE_MS.sum(),
            "recoverable_ratio": 1 - 1 / slowdown, "wasted_gpu_s": lost_s, "confidence": 0.9999,
            "links": [], "collective": None, "period_steps": None,
            "evidence": [
                f"{who} arrived last in {since} of the last {since} steps",
                f"its {self.slow_phase} takes {excess_ms:.1f} ms longer than its peers' median",
                "the other phases and every other rank are within 2 % of the median",
            ],
            "action": self.action
            or f"check clocks and throttling of {who} (nvidia-smi -q -d PERFORMANCE); if it "
            f"persists: scontrol update nodename={nodes[0]} state=drain reason=straggler",
        }  # fmt: skip


def _seen(values: list[Any], seen: list[bool]) -> list[Any]:
    return [value if ok else None for value, ok in zip(values, seen, strict=True)]


def standard_jobs() -> list[PageJob]:
    """Return the jobs that tests, screenshots and development look at."""
    node_42 = tuple(range(336, 344))
    return [
        PageJob("demo", ranks=4, steps=140, slow_ranks=(2,), seed=1),
        PageJob("healthy-8", ranks=8, steps=320, seed=2),
        PageJob("llm-70b", ranks=1024, steps=400, slow_ranks=node_42, slow_phase="forward",
                slow_ratio=0.5, slow_from=330, seed=3, dropped={"ring_overwritten": 1289}),
        PageJob("young", ranks=4, steps=6, seed=4, state="silent", missing_ranks=(3,)),
        PageJob("finished", ranks=8, steps=900, slow_ranks=(5,), slow_phase="input",
                slow_ratio=9.0, slow_from=600, seed=5, state="ended"),
    ]  # fmt: skip
