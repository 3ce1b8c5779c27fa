"""Copies of a batch from the host's memory to a device, between its arrival and the forward.

``docs/adr/0044-causes-inside-the-process.md`` tells why the watch is a descriptor: everybody but
a plain tensor in that stretch of a step gets torch's own method, the very same object.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

from paceline.clock import mono_ns
from paceline.hooks.patches import Patches
from paceline.hooks.recorder import Recorder

LEAST_NS = 50_000
"""Shorter calls are not recorded: they only enqueued the copy, which costs the host nothing."""
METHODS = ("to", "cuda", "xpu")


def may_have_device(torch: Any) -> bool:
    """Whether this build of torch can copy to a device at all; starts no driver."""
    version = torch.version
    return any(getattr(version, name, None) for name in ("cuda", "hip", "xpu"))


class CopyHooks:
    """Watches the methods of a tensor that copy it to another device.

    Args:
        torch: the imported torch.
        recorder: whose clock hears of copies by the training thread.
        patches: remembers what was replaced.
        least_ns: shorter copies are left out.
    """

    def __init__(
        self, torch: Any, recorder: Recorder, patches: Patches, least_ns: int = LEAST_NS
    ) -> None:
        self._torch = torch
        self._recorder = recorder
        self._patches = patches
        self._least_ns = least_ns

    def install(self) -> None:
        """Put the watches into ``torch.Tensor``, which inherits the methods themselves."""
        tensor_type = self._torch.Tensor
        for name in METHODS:
            original = getattr(tensor_type, name, None)
            if original is not None and name not in vars(tensor_type):
                setattr(tensor_type, name, self._watch(original))
                self._patches.on_undo(partial(delattr, tensor_type, name))

    def _watch(self, original: Any) -> Any:
        clock, tensor_type = self._recorder.clock, self._torch.Tensor
        compiling = _compiling(self._torch)
        bind, timed = original.__get__, self._timed(original)

        class Watch:
            """What ``tensor.to`` finds; ``Tensor.to`` finds the original."""

            __slots__ = ()
            __doc__ = original.__doc__

            def __get__(self, tensor: Any, owner: Any = None) -> Any:
                if (
                    clock.awaits_forward
                    and type(tensor) is tensor_type
                    and tensor.is_cpu
                    and not compiling()
                ):
                    return MethodType(timed, tensor)
                return bind(tensor, owner)

        return Watch()

    def _timed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        recorder, least_ns = self._recorder, self._least_ns

        def copy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            start_ns = mono_ns()
            copied = original(tensor, *args, **kwargs)
            end_ns = mono_ns()
            if end_ns - start_ns >= least_ns and not copied.is_cpu:
                try:
                    if recorder.on and recorder.in_training_thread():
                        recorder.clock.copied(start_ns, end_ns)
                except Exception as error:
                    recorder.failed(error)
            return copied

        return copy


def _compiling(torch: Any) -> Callable[[], bool]:
    """Return what tells whether torch's compiler looks at tensors now: it must see no watch."""
    try:
        context = torch._guards.CompileContext.try_get
    except AttributeError:
        is_compiling: Callable[[], bool] = torch.compiler.is_compiling
        return is_compiling
    return lambda: context() is not None
