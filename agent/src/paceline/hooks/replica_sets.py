"""Which tensors of this rank must be equal, bit by bit, to which of other ranks.

Only what torch itself keeps equal is taken: the parameters of ``DistributedDataParallel`` within
its process group, and the shards of FSDP2 across the groups that replicate them (HSDP). What is
sharded differs by rank and is compared with nobody. Buffers are left out: batch statistics are a
rank's own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from paceline.hooks.patches import Patches

MAX_MODULES = 64
_EXACT_HOOKS = ("allreduce_hook", "fp16_compress_hook", "bf16_compress_hook")
_HOOKS_MODULE = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"


_NOT_FOR_DDP = "not for a module of DistributedDataParallel"
_ALONE = frozenset({-1})


class ReplicaSet(NamedTuple):
    """Tensors of which every rank of a group holds a replica."""

    group: Any
    """The process group."""
    tensors: list[Any]
    module: int
    """Which module of the group, in the order in which they were made: the same on all ranks.

    Those that are alive would not do: one rank may have collected its garbage and another not.
    """


class ReplicaSets:
    """Remembers the modules that keep replicas, and says what of them must be equal now.

    Args:
        patches: remembers what was replaced.
        tell: told why a module is left alone, once.
        guarded: runs what is to be done beside the job's own code, and lets nothing escape.
    """

    def __init__(
        self,
        patches: Patches,
        tell: Callable[[str], object],
        guarded: Callable[[Callable[[], Any]], object] = lambda action: action(),
    ) -> None:
        self._patches = patches
        self._tell = tell
        self._guarded = guarded
        self._ddp: list[weakref.ref[Any]] = []
        self._made: dict[str, int] = {}
        """How many modules were made, by name of their group."""
        self._places: list[int] = []
        self._parameters: list[frozenset[int]] = []
        """Of each module of DDP, by ``id``; ``_ALONE`` once it was updated by itself."""
        self._fsdp: list[weakref.ref[Any]] = []

    def install(self, when_imported: Callable[[str, Callable[[ModuleType], None]], None]) -> None:
        """Watch for modules that are made from now on."""
        when_imported("torch.nn.parallel.distributed", self._watch_ddp)
        when_imported("torch.distributed.fsdp._fully_shard._fsdp_state", self._watch_fsdp)
        when_imported("torch.distributed._composable.fsdp._fsdp_state", self._watch_fsdp)

    def updates(self, optimizer: Any) -> None:
        """``optimizer`` is about to step: is that with gradients that were averaged?

        DDP notes in a forward whether the backward after it will synchronize. Without that (within
        ``no_sync``) the step is the rank's own, and its replica is none from now on.
        """
        for number, reference in enumerate(self._ddp):
            module = reference()
            if module is None or module.require_forward_param_sync:
                continue
            known = self._ids(number, module)
            # A group may be empty, and the first parameter may be of another module.
            if any(id(p) in known for group in optimizer.param_groups for p in group["params"]):
                self._parameters[number] = _ALONE
                self._tell(f"{_NOT_FOR_DDP}: it is updated after a forward without synchronization")

    def now(self) -> Iterator[ReplicaSet]:
        """Yield the sets, in the order in which their modules were made."""
        for number, reference in enumerate(self._ddp):
            module = reference()
            if module is None or self._ids(number, module) is _ALONE:
                continue
            why = _why_not(module)
            if why:
                self._tell(f"{_NOT_FOR_DDP}: {why}")
            else:
                parameters = list(module._module_parameters)
                yield ReplicaSet(module.process_group, parameters, self._places[number])
        for number, reference in enumerate(self._fsdp):
            root = reference()
            if root is not None:
                yield from _replicated_shards(root, MAX_MODULES + number)

    def made(self, module: Any) -> None:
        """A module of ``DistributedDataParallel`` was made."""
        if len(self._ddp) < MAX_MODULES:
            name = str(module.process_group.group_name)
            self._places.append(self._made.get(name, 0))
            self._made[name] = self._places[-1] + 1
            self._ddp.append(weakref.ref(module))

    def _ids(self, number: int, module: Any) -> frozenset[int]:
        while len(self._parameters) <= number:
            self._parameters.append(frozenset())
        if not self._parameters[number]:
            self._parameters[number] = frozenset(map(id, module._module_parameters))
        return self._parameters[number]

    def _watch_ddp(self, module: ModuleType) -> None:
        made, guarded = self.made, self._guarded

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
                original(self, *args, **kwargs)
                guarded(lambda: made(self))

            return __init__

        self._patches.wrap(vars(module)["DistributedDataParallel"], "__init__", make)

    def _watch_fsdp(self, module: ModuleType) -> None:
        roots, guarded = self._fsdp, self._guarded

        def began(state: Any) -> None:
            if state._is_root and len(roots) < MAX_MODULES:
                roots.append(weakref.ref(state))

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def _lazy_init(state: Any) -> Any:
                first = getattr(state, "_is_root", False) is None
                result = original(state)
                if first:
                    guarded(lambda: began(state))
                return result

            return _lazy_init

        self._patches.wrap(vars(module)["FSDPState"], "_lazy_init", make)


def _why_not(module: Any) -> str:
    """Return why the parameters of a DDP module may differ by right; empty: they may not."""
    if module._join_config.enable:
        return "it runs under Join, where ranks end at different steps"
    if getattr(module, "mixed_precision", None) is not None:
        return "its mixed precision keeps parameters in two places"
    for hook, _ in module._comm_hooks:
        name = getattr(hook, "__qualname__", type(hook).__name__)
        if getattr(hook, "__module__", "") != _HOOKS_MODULE or name not in _EXACT_HOOKS:
            return f"its communication hook {name} may let replicas differ"
    if any(hasattr(p, "_in_backward_optimizers") for p in module._module_parameters):
        return "its optimizer runs within backward"
    return ""


def _replicated_shards(root: Any, module: int) -> Iterator[ReplicaSet]:
    """Yield what a root of FSDP2 shards, group by group of those that replicate the shards."""
    by_group: dict[int, ReplicaSet] = {}
    for state in root._state_ctx.all_states:
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:
            groups = [state._fsdp_param_group]
        for params in groups:
            group = getattr(getattr(params, "mesh_info", None), "replicate_process_group", None)
            if group is None:
                continue
            found = by_group.setdefault(id(group), ReplicaSet(group, [], module))
            found.tensors.extend(one.sharded_param._local_tensor for one in params.fsdp_params)
    yield from by_group.values()
