"""Which stage of a pipeline each rank is, from whom it sends to (docs/math/peers.md)."""

from __future__ import annotations

import numpy as np

from paceline.vocabulary import Op
from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.records import BoolArray, Int64Array
from paceline_service.analysis.sets import distinct

MAX_STAGES = 1024
"""Ranks further down a chain count as one stage: no pipeline is so deep."""


def stages(sends_and_receives: Table, world_size: int) -> Int64Array:
    """Return (R,) how many ranks stand before each in its pipeline; 0 outside of any.

    Ranks that exchange with each other form a component. Where more than two do and all send and
    receive equally often it is a ring or an exchange of all with all, where every rank does the
    same; else it is a pipeline, whose ends send less.
    """
    rank, peer = sends_and_receives.rank, sends_and_receives.peer
    known = (peer >= 0) & (peer != rank)
    rank, peer = rank[known], peer[known]
    sends = sends_and_receives.code[known] == Op.SEND
    edge = distinct(np.minimum(rank, peer) * world_size + np.maximum(rank, peer))
    low, high = edge // world_size, edge % world_size
    component = _components(low, high, world_size)
    stage = np.zeros(world_size, dtype=np.int64)
    for _ in range(MAX_STAGES):
        deeper = stage.copy()
        np.maximum.at(deeper, high, stage[low] + 1)
        if (deeper == stage).all():
            break
        stage = deeper
    sent = np.bincount(rank[sends], minlength=world_size)
    received = np.bincount(rank[~sends], minlength=world_size)
    size = np.bincount(component, minlength=world_size)
    ring = (size > 2) & _all_equal(sent, component) & _all_equal(received, component)
    stage[ring[component]] = 0
    return stage


def _components(low: Int64Array, high: Int64Array, world_size: int) -> Int64Array:
    """Return (R,) the lowest rank that each is connected with."""
    label = np.arange(world_size)
    while True:
        before = label.copy()
        np.minimum.at(label, high, label[low])
        np.minimum.at(label, low, label[high])
        label = label[label]
        if (label == before).all():
            return label


def _all_equal(values: Int64Array, component: Int64Array) -> BoolArray:
    """Return (R,) by component: whether all its ranks have the same value."""
    least = np.full(len(values), np.iinfo(np.int64).max)
    np.minimum.at(least, component, values)
    most = np.full(len(values), -1)
    np.maximum.at(most, component, values)
    return np.asarray(least == most)
