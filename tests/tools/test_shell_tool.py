"""BTOOL-37 to -39: one command line in the worktree."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from outpost_lsp.domain.permission import PermissionRule, Permissions, Resources
from outpost_lsp.errors import OutpostError
from outpost_lsp.tools.shell import shell_of, shell_tools
from tests.tools.conftest import by_name

TOOLS = shell_tools()


def living(group: int) -> list[int]:
    """The processes of a group that are more than a name waiting for its parent."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _parent, of_group = entry.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(of_group) == group and state != "Z":
            found.append(int(entry.parent.name))
    return found


async def test_BTOOL_37_it_runs_in_the_root_with_closed_input(workplace):
    output = await workplace.call(TOOLS, "shell", command="pwd && cat && echo done")
    assert output.content == f"exit status 0\n--- stdout ---\n{workplace.lease.root}\ndone"


def test_BTOOL_40_windows_has_powershell_without_profile_and_a_model_is_told():
    program = shell_of("win32")
    assert (program.executable, "-NoProfile" in program.arguments) == ("powershell", True)
    assert "PowerShell, without profile" in program.description
    assert shell_of("linux")[:2] == shell_of("darwin")[:2] == ("sh", ("-c",))
    [own] = TOOLS.tools
    assert own.description.startswith(shell_of(sys.platform).description)


async def test_BTOOL_38_status_and_channels_are_shown(workplace):
    output = await workplace.call(TOOLS, "shell", command="echo out; echo err >&2; exit 3")
    assert output.is_error
    assert output.content == "exit status 3\n--- stdout ---\nout\n--- stderr ---\nerr"
    assert (await workplace.call(TOOLS, "shell", command="true")).content == "exit status 0"


@pytest.mark.parametrize("deadline_s", [0, -1, float("nan"), float("inf"), True, "120"])
def test_BTOOL_37_a_deadline_is_positive(deadline_s):
    with pytest.raises(OutpostError, match="deadline_s") as caught:
        shell_tools(deadline_s)
    assert caught.value.code == "configuration"


async def test_BTOOL_39_a_passed_deadline_is_a_tool_error_and_the_group_is_gone(workplace):
    started = time.monotonic()
    command = "echo $$ > pid; echo before; sleep 1000 & sleep 1000"
    output = await workplace.call(shell_tools(0.5), "shell", command=command)
    assert output.is_error
    assert output.content.startswith("The command did not end within 0.5 s")
    assert "before" in output.content
    assert time.monotonic() - started < 30
    group = int(workplace.read("pid"))
    assert living(group) == []


async def test_TEXEC_14_head_and_tail_of_long_output_are_kept(workplace):
    command = "i=0; while [ $i -lt 30000 ]; do echo line $i; i=$((i+1)); done; echo oops >&2"
    output = await workplace.call(TOOLS, "shell", command=command)
    assert len(output.content) < 100_000
    assert "\nline 0\n" in output.content
    assert "\nline 29999\n" in output.content
    assert output.content.endswith("--- stderr ---\noops")
    assert "characters left out" in output.content


def test_permissions_see_the_command_as_one_string():
    tool = by_name(TOOLS, "shell")
    assert not tool.read_only
    assert tool.resources_of({"command": "cd x && rm y"}) == Resources(command="cd x && rm y")
    rules = Permissions([PermissionRule("deny", commands=["rm *"])])
    assert rules.verdict("shell", Resources(command="rm y")).effect == "deny"
    assert rules.verdict("shell", Resources(command="cd x && rm y")).effect == "allow"
