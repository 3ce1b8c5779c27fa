from __future__ import annotations

import hashlib
import os
import pickle
import zlib
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import numpy as np
import pytest

from paceline.vocabulary import Op
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import Group
from paceline_service.jobs import checkpoint_codec
from paceline_service.jobs.checkpoint_codec import (
    CheckpointError,
    dump,
    fingerprint,
    load,
    pack,
    unpack,
)


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def test_what_an_analysis_consists_of_comes_back_with_its_identities() -> None:
    shared = np.arange(6).reshape(2, 3)
    state: dict[str, Any] = {
        "arrays": [shared, shared, shared[:, ::2], np.zeros(0), np.array([True]), np.float64(2.5)],
        "plain": [Counter(a=1), OrderedDict(b=2), deque([1, 2], maxlen=4), {3}, (4, "x", b"y")],
        "grouped": defaultdict(list, {1: [2]}),
        "ours": [Options(), Group(name="dp", ranks=(0, 1)), Op.ALL_REDUCE],
    }
    back = load(unpack(pack(dump(state)), sha256(pack(dump(state)))))
    assert back["plain"] == state["plain"]
    assert back["plain"][2].maxlen == 4
    assert back["ours"] == state["ours"]
    assert back["grouped"][9] == []
    assert back["arrays"][0] is back["arrays"][1]
    back["arrays"][0][0, 0] = 7  # arrays may be written to
    assert back["arrays"][2].tolist() == [[0, 2], [3, 5]]


class Calls:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.reduced = function, arguments

    def __reduce__(self) -> Any:
        return self.reduced


@pytest.mark.parametrize(
    "hostile",
    [
        Calls(os.system, "touch /tmp/owned"),
        Calls(eval, "1 + 1"),
        Calls(getattr, Options, "__init__"),
        Calls(np.fromfile, "/etc/hostname"),
        Calls(np.load, "/etc/hostname"),
        Calls(pickle.loads, b"N."),
        Calls(checkpoint_codec.load, b"N."),
    ],
)
def test_a_checkpoint_that_calls_anything_is_refused(hostile: Calls) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint holds"):
        load(pickle.dumps([hostile], 5))


@pytest.mark.parametrize(
    "raw",
    [
        # What a module of the analysis imports is not its own.
        b"cpaceline_service.analysis.job\nnp\n.",
        b"cpaceline_service.analysis.job\nBlameLedger\n.",
        b"cpaceline_service.analysis.job\nJobAnalysis.report\n.",
        b"\x80\x04\x8c\x1epaceline_service.analysis.job_x\x8c\x01a\x93.",
        b"cpaceline_service.analysis.options\nDAY_S\n.",
        b"cpaceline_service.serve\nmain\n.",
        b"Pelsewhere\n.",
        b"",
        b"\x80\x05",
        b"garbage",
    ],
)
def test_what_is_no_checkpoint_is_refused_and_never_another_error(raw: bytes) -> None:
    with pytest.raises(CheckpointError):
        load(raw)


def test_damage_is_found_before_anything_is_read() -> None:
    body = pack(dump({"a": 1}))
    for bad in (body[:-1], body[:5] + bytes([body[5] ^ 1]) + body[6:], b""):
        with pytest.raises(CheckpointError, match="damaged"):
            unpack(bad, sha256(body))
    for bad in (b"no zlib", body[:-3]):
        with pytest.raises(CheckpointError, match="damaged"):
            unpack(bad, sha256(bad))


def test_a_checkpoint_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_codec, "MAX_BYTES", 1000)
    body = zlib.compress(bytes(10_000))
    with pytest.raises(CheckpointError, match="more than 1000"):
        unpack(body, sha256(body))


def test_what_cannot_be_written_down_is_said_and_not_raised_through() -> None:
    with pytest.raises(CheckpointError, match="cannot be written"):
        dump({"f": lambda: 1})


def test_the_fingerprint_is_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fingerprint() == fingerprint()
    assert len(fingerprint()) == 64
    before = fingerprint()
    monkeypatch.setattr(checkpoint_codec, "FORMAT", 2)
    fingerprint.cache_clear()
    assert fingerprint() != before
    fingerprint.cache_clear()
