"""Which hooks on collectives a process gets: the native ones where they are built, or Python's."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from paceline.hooks.collectives import CollectiveHooks
from paceline.hooks.recorder import Recorder

if TYPE_CHECKING:
    from paceline.hooks.groups import Groups
    from paceline.ring.writer import RingWriter

log = logging.getLogger("paceline")


def recorder_and_hooks(
    torch: Any, c10d: Any, writer: RingWriter, groups: Groups, level: str
) -> tuple[Recorder, CollectiveHooks]:
    """Make the recorder of this process and install the hooks on its collectives."""
    from paceline.hooks.native.loader import load_for_training

    native = load_for_training(torch, os.environ)
    if native is not None:
        from paceline.hooks.native.hook import NativeHooks, native_recorder

        recorder = native_recorder(native)(writer, groups, level)
        hooks = NativeHooks(torch, c10d, recorder, native)
        try:
            hooks.install()
        except Exception as error:
            log.warning("the Python hooks serve; the native hook does not work: %s", error)
            hooks.remove()
        else:
            writer.meta({"info": {"hooks": "native"}})
            return recorder, hooks
    else:
        recorder = Recorder(writer, groups, level)
    plain = CollectiveHooks(torch, c10d, recorder)
    try:
        plain.install()
    except BaseException:
        plain.leave()
        raise
    writer.meta({"info": {"hooks": "python"}})
    return recorder, plain
