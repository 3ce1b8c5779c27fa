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

from paceline.forward import wrap_look
from paceline.hooks.patches import Patches

MAX_MODULES = 256
"""Of a kind, alive at once: each costs 0.1 us at every update."""
MAX_SETS = 16
"""So many modules of a group are read at a check, more take turns."""
FSDP_MODULES = 1 << 15
"""The numbers of roots of FSDP2 begin here, behind those of DDP."""
_EXACT_HOOKS = ("allreduce_hook", "fp16_compress_hook", "bf16_compress_hook")
_HOOKS_MODULE = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"


_NOT_FOR_DDP = "a module of DDP"
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
    turns: int
    """In how many turns the modules of the group are read."""


class _Ddp:
    """A module of DDP that is watched."""

    __slots__ = ("module", "parameters", "place")

    def __init__(self, module: weakref.ref[Any], place: int) -> None:
        self.module = module
        self.place = place
        self.parameters: frozenset[int] = frozenset()
        """By ``id``, empty until they are asked for; ``_ALONE`` once it was updated by itself."""

    def ids(self, module: Any) -> frozenset[int]:
        """Return them."""
        if not self.parameters:
            self.parameters = frozenset(map(id, module._module_parameters))
        return self.parameters


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
        self.tell = tell
        self._guarded = guarded
        self._ddp: list[_Ddp] = []
        self._made: dict[str, int] = {}
        """How many modules were made, by name of their group."""
        self._looked: weakref.WeakSet[Any] = weakref.WeakSet()
        """Modules of DDP whose mark was taken away by a forward without gradients."""
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
        for one in self._ddp:
            module = one.module()
            if module is None or module.require_forward_param_sync or module in self._looked:
                continue
            known = one.ids(module)
            # A group may be empty, and the first parameter may be of another module.
            if any(id(p) in known for group in optimizer.param_groups for p in group["params"]):
                one.parameters = _ALONE
                self.tell(f"{_NOT_FOR_DDP}: it is updated after a forward without synchronization")

    def now(self, turn: int) -> Iterator[ReplicaSet]:
        """Yield the sets whose turn it is, in the order in which their modules were made.

        Args:
            turn: counts, the same on all ranks.
        """
        for one in self._ddp:
            module = one.module()
            if module is None or one.ids(module) is _ALONE:
                continue
            turns = _turns(self._made[_name_of(module)])
            if one.place // MAX_SETS != turn % turns:
                continue
            why = _why_not(module)
            if why:
                self.tell(f"{_NOT_FOR_DDP}: {why}")
            else:
                parameters = list(module._module_parameters)
                yield ReplicaSet(module.process_group, parameters, one.place, turns)
        turns = _turns(len(self._fsdp))
        first = turn % turns * MAX_SETS
        for number, reference in enumerate(self._fsdp[first : first + MAX_SETS], first):
            root = reference()
            if root is not None:
                yield from _replicated_shards(root, FSDP_MODULES + number, turns)

    def made(self, module: Any) -> None:
        """A module of ``DistributedDataParallel`` was made."""
        name = _name_of(module)
        place = self._made.get(name, 0)
        self._made[name] = place + 1
        if len(self._ddp) >= MAX_MODULES:
            self._ddp = [one for one in self._ddp if one.module() is not None]
        if len(self._ddp) >= MAX_MODULES or place >= FSDP_MODULES:
            self.tell(f"{_NOT_FOR_DDP}: {MAX_MODULES} others are watched, and no more")
        else:
            self._ddp.append(_Ddp(weakref.ref(module), place))

    def looked(self, module: Any, *, took_mark: bool) -> None:
        """A forward of a module of DDP is over.

        Args:
            module: whose.
            took_mark: it was without gradients and took DDP's mark away, though the gradients that
                are there were averaged.
        """
        if took_mark:
            self._looked.add(module)
        else:
            self._looked.discard(module)

    def _watch_ddp(self, module: ModuleType) -> None:
        made, guarded = self.made, self._guarded

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
                original(self, *args, **kwargs)
                guarded(lambda: made(self))

            return __init__

        model, torch = vars(module)["DistributedDataParallel"], vars(module)["torch"]
        self._patches.wrap(model, "__init__", make)

        def has_mark(model: Any) -> bool:
            return bool(getattr(model, "require_forward_param_sync", False))

        def forward_ended(model: Any, had_mark: bool) -> None:
            if torch.is_grad_enabled():
                if model in self._looked:
                    guarded(lambda: self.looked(model, took_mark=False))
            elif had_mark and not has_mark(model):
                guarded(lambda: self.looked(model, took_mark=True))

        def look(original: Callable[..., Any]) -> Callable[..., Any]:
            return wrap_look(original, torch.compiler.is_compiling, has_mark, forward_ended)

        self._patches.wrap(model, "forward", look, traceable=True)

    def _watch_fsdp(self, module: ModuleType) -> None:
        roots, guarded = self._fsdp, self._guarded

        def began(state: Any) -> None:
            if not state._is_root:
                return
            if len(roots) < MAX_MODULES:
                roots.append(weakref.ref(state))
            else:
                self.tell(f"a root of FSDP2: {MAX_MODULES} others are watched")

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def _lazy_init(state: Any) -> Any:
                first = getattr(state, "_is_root", False) is None
                result = original(state)
                if first:
                    guarded(lambda: began(state))
                return result

            return _lazy_init

        self._patches.wrap(vars(module)["FSDPState"], "_lazy_init", make)


def _turns(modules: int) -> int:
    return max(-(-modules // MAX_SETS), 1)


def _name_of(module: Any) -> str:
    return str(module.process_group.group_name)


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


def _replicated_shards(root: Any, module: int, turns: int) -> Iterator[ReplicaSet]:
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
            found = by_group.setdefault(id(group), ReplicaSet(group, [], module, turns))
            found.tensors.extend(one.sharded_param._local_tensor for one in params.fsdp_params)
    yield from by_group.values()
