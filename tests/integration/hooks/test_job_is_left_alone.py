from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from paceline.vocabulary import Op
from tests.integration.hooks.kit import Finished, run_ranks

pytestmark = pytest.mark.integration


def run(case: str, directory: Path, hooks: Mapping[str, str], **env: str) -> Finished:
    job = run_ranks("left_alone.py", directory, 1, env={**hooks, **env}, arguments=[case])
    assert job.returncodes == [0], job.output
    for ring in job.rings.values():
        assert ring.errors == 0
        assert ring.closed
    return job


def test_init_before_torch_is_imported_works_under_paceline_run(tmp_path: Path) -> None:
    run("init_before_torch", tmp_path, {})


def test_a_pool_of_processes_can_be_given_torchs_functions_that_save(tmp_path: Path) -> None:
    run("save_in_another_process", tmp_path, {})


def test_a_child_that_is_forked_while_collectives_complete_does_not_hang(
    tmp_path: Path, native: Mapping[str, str]
) -> None:
    run("fork_while_collectives_complete", tmp_path, native)


def test_closing_and_beginning_again_never_disturbs_threads_that_issue_collectives(
    tmp_path: Path, hooks: Mapping[str, str]
) -> None:
    job = run("close_and_begin_again_beside_threads", tmp_path, hooks)
    assert job.rings[0].ops() == [Op.ALL_REDUCE]  # the last of the rings
    assert "Error" not in job.output[0]
    assert "Exception" not in job.output[0]


def test_a_beginning_that_fails_half_way_leaves_no_hook_behind(
    tmp_path: Path, hooks: Mapping[str, str]
) -> None:
    job = run("begin_without_room_for_a_thread", tmp_path, hooks)
    assert job.rings[0].collectives() == []
    assert "nothing can be captured in this process: can't start new thread" in job.output[0]
