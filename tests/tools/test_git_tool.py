"""BTOOL-34 to -36 and -38: git, and what it is not asked to do."""

from __future__ import annotations

import pytest

from outpost_lsp.domain.permission import Resources
from outpost_lsp.domain.tool import InvalidInputError
from outpost_lsp.tools.git import git_tools
from tests.tools.conftest import Workplace, by_name

TOOLS = git_tools()


async def git(workplace: Workplace, command: str, *arguments: str) -> str:
    output = await workplace.call(TOOLS, "git", command=command, arguments=list(arguments))
    assert not output.is_error, output
    return output.content


@pytest.fixture
def committed(workplace) -> Workplace:
    workplace.write("a.txt", "one\n")
    workplace.repository.commit("the first")
    workplace.write("a.txt", "two\n")
    return workplace


async def test_BTOOL_38_the_status_comes_first_and_then_each_channel(committed):
    assert await git(committed, "log", "-n", "1", "--format=%s") == "exit status 0\n--- stdout ---\nthe first"
    assert await git(committed, "diff", "--", "no/such") == "exit status 0"
    output = await committed.call(TOOLS, "git", command="show", arguments=["nowhere"])
    assert output.is_error
    assert output.content.startswith("exit status 128\n--- stderr ---\nfatal: ")


async def test_the_four_commands_work(committed):
    assert "modified:   a.txt" in await git(committed, "status")
    assert "+two" in await git(committed, "diff")
    assert "+two" in await git(committed, "diff", "HEAD", "--", "a.txt")
    assert "one" in await git(committed, "show", "HEAD:a.txt")
    assert "the first" in await git(committed, "log", "--oneline")
    assert "a.txt" in await git(committed, "diff", "--stat", "--text", "-U0", "-w")


@pytest.mark.parametrize(
    "argument",
    [
        "--output=x",
        "--output",
        "--outp=x",
        "--o",
        "--output-directory=x",
        "--ext-diff",
        "--ext",
        "--textconv",
        "--textc",
        "--open-files-in-pager=evil",
        "--open",
        "--no-index",
        "--no-in",
        "--orderfile=x",
        "-Ox",
        "-O",
        "-pOx",
        "--show-signature",
        "--show-sig",
        "--submodule=diff",
        "/etc/passwd",
        "../outside",
        "a/../../outside",
        "HEAD:../outside",
        "a\0b",
    ],
)
async def test_BTOOL_35_BTOOL_36_what_writes_starts_programs_or_leaves_is_refused(committed, argument):
    output = await committed.call(TOOLS, "git", command="diff", arguments=["HEAD", argument])
    assert output.is_error
    assert output.content.endswith("nothing was run")
    assert sorted(path.name for path in committed.repository.top.iterdir()) == [".git", "a.txt"]


@pytest.mark.parametrize(
    "arguments", [["-SOne"], ["-GTODO"], ["HEAD..HEAD"], [":/first"], ["x:a.txt"], ["-M"], ["--no-ext-diff"]]
)
async def test_what_only_looks_like_it_is_passed_on(committed, arguments):
    committed.repository.git("branch", "x")
    output = await committed.call(TOOLS, "git", command="show" if ":" in arguments[0] else "diff", arguments=arguments)
    assert not output.content.endswith("nothing was run")


async def test_BTOOL_34_no_program_of_the_repository_starts(committed, tmp_path):
    marker = tmp_path / "marker"
    program = committed.write("evil.sh", f'#!/bin/sh\ntouch {marker}\ncat "$1"\n')
    program.chmod(0o755)
    committed.write(".gitattributes", "*.txt diff=evil\n")
    for key in ("diff.external", "diff.evil.command", "diff.evil.textconv", "core.pager", "gpg.program"):
        committed.repository.git("config", key, str(program))
    await git(committed, "diff")
    await git(committed, "show", "HEAD")
    await git(committed, "log", "-p", "--format=%G? %s")
    await git(committed, "status")
    assert not marker.exists()


async def test_SEC_07_an_absolute_path_below_the_root_is_taken_relative(committed):
    assert "+two" in await git(committed, "diff", "--", str(committed.repository.top / "a.txt"))


async def test_paths_are_names_and_never_patterns(committed):
    assert await git(committed, "diff", "--", "*.txt") == "exit status 0"


async def test_TEXEC_14_long_output_keeps_head_and_tail(committed):
    committed.write("a.txt", "".join(f"line {number}\n" for number in range(40_000)))
    text = await git(committed, "diff")
    assert len(text) < 100_000
    assert "+line 0\n" in text
    assert "+line 39999" in text
    assert "characters left out" in text


async def test_output_beyond_what_is_read_is_said_to_be_cut(committed):
    committed.write("a.txt", "x" * 5_000_000 + "\n")
    assert (await git(committed, "diff")).endswith("bytes were read; ask for less]")


def test_the_tool_is_read_only_and_declares_its_command():
    tool = by_name(TOOLS, "git")
    assert tool.read_only
    assert tool.resources_of({"command": "log", "arguments": ["-n", "1"]}) == Resources(command="git log -n 1")
    assert tool.resources_of({"command": "status"}) == Resources(command="git status")
    for fields in ({"command": "push"}, {"command": "log", "arguments": "x"}, {}):
        with pytest.raises(InvalidInputError):
            tool.validated(fields)
