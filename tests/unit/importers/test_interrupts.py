"""Ctrl-C does not come in the middle of an import, and is not lost."""

from __future__ import annotations

import signal

import pytest

from paceline_service.importers.interrupts import ctrl_c_waits


def test_ctrl_c_comes_behind_what_must_not_be_interrupted() -> None:
    done = []

    def interrupted() -> None:
        with ctrl_c_waits():
            signal.raise_signal(signal.SIGINT)
            done.append("imported")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["imported"]


def test_afterwards_it_comes_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="broken"), ctrl_c_waits():
        raise ValueError("broken")
    assert signal.getsignal(signal.SIGINT) is before
