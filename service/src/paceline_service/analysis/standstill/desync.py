"""Ranks that issued different operations under one number, in steps that went on all the same."""

from __future__ import annotations

import numpy as np

from paceline.counted import counted
from paceline.ranks import format_ranks
from paceline.vocabulary import P2P_OPS, Op, op_name
from paceline_service.analysis.channel import JobFacts, JudgedStep
from paceline_service.analysis.report import Finding
from paceline_service.analysis.sets import distinct, one_of

MAX_TOLD = 8
"""Contradictions that are kept; one of them is enough to look at."""
_P2P = np.array(sorted(P2P_OPS), dtype=np.int64)


class Desync:
    """The channel of contradicting operations."""

    def __init__(self) -> None:
        self._count = 0
        self._first: list[tuple[int, int, int, tuple[int, ...], int, int]] = []
        """Step, group, seq, the odd ranks, their operation, that of the others."""

    def see(self, step: JudgedStep) -> None:
        """Look at the instances whose members do not agree."""
        matches = step.matches
        if not matches.mismatched or not len(matches.first):
            return
        rows, first = matches.rows, matches.first
        known = np.where(rows.code == Op.UNKNOWN, -1, rows.code)
        lowest = np.minimum.reduceat(np.where(known < 0, 1 << 20, known), first)
        highest = np.maximum.reduceat(known, first)
        pair = one_of(rows.code[first], _P2P)
        odd = np.flatnonzero((lowest < highest) & ~pair & (lowest < 1 << 20))
        # What is pending on every member, the diagnosis of standstills looks at.
        odd = odd[np.maximum.reduceat(rows.end_ns, first)[odd] > 0]
        self._count += len(odd)
        for at in odd[: max(MAX_TOLD - len(self._first), 0)].tolist():
            end = first[at + 1] if at + 1 < len(first) else len(rows)
            mine = rows.take(slice(int(first[at]), int(end)))
            codes, counts = np.unique(mine.code, return_counts=True)
            usual = int(codes[np.argmax(counts)])
            ranks = distinct(mine.rank[mine.code != usual])
            other = int(mine.code[mine.code != usual][0])
            self._first.append(
                (step.row.step, int(mine.group[0]), int(mine.seq[0]), tuple(ranks.tolist()),
                 other, usual)
            )  # fmt: skip

    def findings(self, facts: JobFacts) -> list[Finding]:
        """Return one finding about all of them."""
        if not self._first:
            return []
        step, group, seq, ranks, other, usual = self._first[0]
        everyone = sorted({rank for one in self._first for rank in one[3]})
        name = facts.groups[group].name
        was, expected = op_name(Op(other)), op_name(Op(usual))
        return [
            Finding(
                kind="desync",
                ranks=everyone,
                nodes=sorted({facts.nodes[rank] for rank in everyone if facts.nodes.get(rank)}),
                cause="unknown",
                phase=None,
                first_step=step,
                last_step=self._first[-1][0],
                slowdown=None,
                recoverable_ratio=None,
                wasted_gpu_s=None,
                confidence=None,
                evidence=[
                    f"in step {step} rank {format_ranks(ranks)} issued {was} as number {seq} of "
                    f"group {name}, and the other members {expected}",
                    f"{counted(self._count, 'collective was', 'collectives were')} contradicted "
                    "like that",
                ],
                action=f"py-spy dump --pid PID_OF_RANK_{everyone[0]}  # compare with another rank",
                collective={"group": name, "op": was, "seq": seq, "age_s": None},
            )
        ]

    def notes(self, facts: JobFacts) -> list[str]:
        """Return nothing: its finding says it."""
        return []
