"""The next command is pasted into a shell: no name of a node makes it another one."""

from __future__ import annotations

import pytest

from paceline_service.analysis.causes.actions import action_for, names_a_node

HOSTILE = ("a; reboot", "$(id)", "`id`", "a\nid", "ALL", "a[1-99]", "a,b", "-a", "a b", "a#b", "")


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("remedy", ["cooling", "reset", "steal", "input", "no_core", "unknown"])
def test_a_command_holds_no_name_that_no_node_can_have(remedy: str, name: str) -> None:
    assert not names_a_node(name)
    command = action_for(remedy, "gpu_fault", rank=3, node=name, alone=False)
    assert command == action_for(remedy, "gpu_fault", rank=3, node="", alone=False)
    assert not name or name not in command


def test_the_node_of_a_command_is_the_one_that_was_named() -> None:
    command = action_for("cooling", "gpu_throttle", rank=3, node="node-7.rack", alone=False)
    assert command.startswith("scontrol update nodename=node-7.rack state=drain")
    assert "kubectl cordon node-7.rack" in command
