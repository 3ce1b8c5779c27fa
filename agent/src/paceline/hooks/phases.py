"""Tells the step clock what the training loop does: wrappers round torch's own entry points."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from paceline.clock import mono_ns
from paceline.forward import wrap_forward
from paceline.hooks.checkpoints import CheckpointHooks
from paceline.hooks.copies import CopyHooks, may_have_device
from paceline.hooks.engine import watch_engine
from paceline.hooks.patches import Patches
from paceline.hooks.recorder import Recorder

WhenImported = Callable[[str, Callable[[ModuleType], None]], None]
Original = Callable[..., Any]


class PhaseHooks:
    """Installs what marks inputs, copies, forwards, backwards, optimizer steps and checkpoints.

    Args:
        torch: the imported torch.
        recorder: where the phases go.
        patches: remembers what was replaced.
    """

    def __init__(self, torch: Any, recorder: Recorder, patches: Patches) -> None:
        self._torch = torch
        self._grad_enabled = torch.is_grad_enabled
        self._is_compiling = torch.compiler.is_compiling
        self._recorder = recorder
        self._clock = recorder.clock
        self._patches = patches

    def install(self, when_imported: WhenImported) -> None:
        """Patch what is imported now, and the rest when it is."""
        patches: tuple[tuple[str, Callable[[ModuleType], None]], ...] = (
            ("torch.optim.optimizer", self._optimizers),
            ("torch.autograd.variable", self._backward),
            ("torch.utils.data.dataloader", self._input),
            ("torch.nn.parallel.distributed", self._ddp),
            ("torch.distributed.fsdp.fully_sharded_data_parallel", self._fsdp1),
            ("torch.distributed.fsdp._fully_shard._fsdp_state", self._fsdp2),
            ("torch.distributed._composable.fsdp._fsdp_state", self._fsdp2),
            ("torch.distributed.pipelining.stage", self._pipeline),
            ("torch.amp.grad_scaler", self._scaler),
        )
        for module, patch in patches:
            when_imported(module, patch)
        CheckpointHooks(self._clock, self.tell, self._patches).install(when_imported)
        if may_have_device(self._torch):
            CopyHooks(self._torch, self._recorder, self._patches).install()

    def tell(self, event: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Tell the clock ``event`` if the caller is the training thread; never raises."""
        recorder = self._recorder
        if not recorder.on or not recorder.in_training_thread():
            return None
        try:
            return event(*args, mono_ns(), **kwargs)
        except Exception as error:
            recorder.failed(error)
            return None

    def _optimizers(self, module: ModuleType) -> None:
        recorder, clock, tell = self._recorder, self._clock, self.tell

        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            if not recorder.on:
                return
            if clock.in_backward and recorder.may_be_autograd():
                recorder.guarded(lambda: clock.optimizer_begin(id(optimizer), 0))
                return
            recorder.guarded(recorder.claim_training_thread)
            self._sweep()
            tell(clock.optimizer_begin, id(optimizer))
            if recorder.replicas is not None and recorder.in_training_thread():
                recorder.replicas.optimizer_begins(optimizer)

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            if not clock.in_backward and tell(clock.optimizer_end):
                self._sweep()

        named: Any = module
        self._patches.on_undo(named.register_optimizer_step_pre_hook(before).remove)
        self._patches.on_undo(named.register_optimizer_step_post_hook(after).remove)

    def _backward(self, module: ModuleType) -> None:
        recorder, clock, tell = self._recorder, self._clock, self.tell

        def make(original: Original) -> Original:
            def run_backward(*args: Any, **kwargs: Any) -> Any:
                begin_ns = mono_ns()
                tell(clock.backward_begin)
                try:
                    return original(*args, **kwargs)
                finally:
                    accumulates = bool(kwargs.get("accumulate_grad", True))
                    stepped = clock.stepped_in_backward
                    if tell(clock.backward_end, accumulates=accumulates):
                        if stepped and recorder.on:
                            recorder.guarded(recorder.claim_training_thread)
                        self._sweep(joined_since_ns=begin_ns)

            return run_backward

        if watch_engine(module, self._patches, make):
            return
        # What Tensor.backward, autograd.backward, autograd.grad and checkpointing all call.
        autograd = self._torch.autograd
        if not self._patches.wrap(autograd, "_engine_run_backward", make):
            self._patches.wrap(autograd, "backward", make)

    def _input(self, module: ModuleType) -> None:
        clock, tell = self._clock, self.tell

        def make(original: Original) -> Original:
            def __next__(iterator: Any) -> Any:
                tell(clock.input_begin)
                got_batch = False
                try:
                    batch = original(iterator)
                    got_batch = True
                    return batch
                finally:
                    tell(clock.input_end, got_batch=got_batch)

            return __next__

        self._patches.wrap(vars(module)["_BaseDataLoaderIter"], "__next__", make)

    def _ddp(self, module: ModuleType) -> None:
        model = vars(module)["DistributedDataParallel"]
        self._patches.wrap(model, "forward", self._forward, traceable=True)

    def _fsdp1(self, module: ModuleType) -> None:
        model = vars(module)["FullyShardedDataParallel"]
        self._patches.wrap(model, "forward", self._forward, traceable=True)

    def _forward(self, original: Original) -> Original:
        clock, tell = self._clock, self.tell

        def begin() -> None:
            tell(clock.forward_begin)

        def end() -> None:
            tell(clock.forward_return, backward_follows=self._grad_enabled())
            self._sweep()  # DDP broadcasts its buffers in there

        return wrap_forward(original, self._is_compiling, begin, end)

    def _fsdp2(self, module: ModuleType) -> None:
        clock, tell = self._clock, self.tell

        def make_begin(original: Original) -> Original:
            def _root_pre_forward(state: Any, *args: Any, **kwargs: Any) -> Any:
                if not clock.in_backward and state._state_ctx.iter_forward_root is None:
                    tell(clock.forward_begin)
                return original(state, *args, **kwargs)

            return _root_pre_forward

        def make_return(original: Original) -> Original:
            def _post_forward(state: Any, *args: Any, **kwargs: Any) -> Any:
                is_root = state._state_ctx.iter_forward_root is state
                try:
                    return original(state, *args, **kwargs)
                finally:
                    if is_root and not clock.in_backward:
                        tell(clock.forward_return, backward_follows=self._grad_enabled())

            return _post_forward

        state = vars(module)["FSDPState"]
        if self._patches.wrap(state, "_root_pre_forward", make_begin):
            self._patches.wrap(state, "_post_forward", make_return)

    def _pipeline(self, module: ModuleType) -> None:
        clock, tell = self._clock, self.tell

        def make(original: Original) -> Original:
            def forward_one_chunk(*args: Any, **kwargs: Any) -> Any:
                tell(clock.forward_begin)
                try:
                    return original(*args, **kwargs)
                finally:
                    tell(clock.forward_return, backward_follows=False)

            return forward_one_chunk

        stage = vars(module).get("_PipelineStageBase")
        if stage is not None:
            self._patches.wrap(stage, "forward_one_chunk", make)

    def _scaler(self, module: ModuleType) -> None:
        clock, tell = self._clock, self.tell

        def make(original: Original) -> Original:
            def update(*args: Any, **kwargs: Any) -> Any:
                try:
                    return original(*args, **kwargs)
                finally:
                    tell(clock.scaler_updated)

            return update

        self._patches.wrap(vars(module)["GradScaler"], "update", make)

    def _sweep(self, joined_since_ns: int = 0) -> None:
        recorder = self._recorder
        if recorder.on and len(recorder.pending):
            recorder.guarded(lambda: recorder.sweep(mono_ns(), joined_since_ns))
