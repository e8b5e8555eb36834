from __future__ import annotations

import ast
import errno
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import outpost_lsp
from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.changed_lines import changed_files_and_lines
from outpost_lsp.worktrees.changes import change_set, changed_files, patch
from outpost_lsp.worktrees.git import find_repository, open_git, resolve_commit, run_git
from outpost_lsp.worktrees.hardening import disarmed, host_environment, parse_configuration, variables
from outpost_lsp.worktrees.objects import object_reader
from outpost_lsp.worktrees.on_demand import _converted_reader
from outpost_lsp.worktrees.snapshot import take_snapshot
from outpost_lsp.worktrees.worktree import open_worktree, reap
from tests.support.repositories import Case, RealRepository, make_repository


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """An environment whose `git` writes down how it was called and then does its work."""
    folder = tmp_path / "stub"
    folder.mkdir()
    real = shutil.which("git")
    program = folder / "git"
    log = tmp_path / "calls"
    program.write_text(
        "#!/usr/bin/env python3\n"
        "import json, os, sys\n"
        f"with open({str(log)!r}, 'a') as log:\n"
        "    call = {'argv': sys.argv[1:], 'env': dict(os.environ), 'stdin': os.readlink('/proc/self/fd/0')}\n"
        "    log.write(json.dumps(call) + '\\n')\n"
        f"os.execv({real!r}, ['git', *sys.argv[1:]])\n"
    )
    program.chmod(0o755)
    host = host_environment()
    return {**host, "PATH": f"{folder}:{host['PATH']}"}, log


async def test_SEC_01_every_call_has_the_clean_environment_and_closed_input(
    repository: RealRepository,
    recorded: tuple[dict[str, str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment, log = recorded
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "/bin/false")
    monkeypatch.setenv("OPENAI_API_KEY", "canary-key")
    found = await find_repository(repository.path, environment)
    repository.write("a.txt", "changed\n")
    snapshot = await take_snapshot(found, unsaved={"src/main.py": "x = 1\n"})
    worktree = await open_worktree(found, snapshot.commit, tmp_path / "trees", run_id="run")
    (worktree.directory / "a.txt").write_text("agent\n")
    changes = await change_set(worktree.repository, snapshot.commit)
    await patch(found, snapshot.commit, changes.commit, max_output=1_000_000)
    await changed_files_and_lines(found, snapshot.head, snapshot.commit)
    await worktree.close(keep=False)
    await reap(found, tmp_path / "trees")

    calls = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(calls) > 10
    for call in calls:
        variables = call["env"]
        expected = {
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_ALLOW_PROTOCOL": "",
            "LC_ALL": "C",
        }
        assert {name: variables.get(name) for name in expected} == expected
        assert "GIT_EXTERNAL_DIFF" not in variables
        assert "canary-key" not in json.dumps(variables)
        settings = {
            variables[f"GIT_CONFIG_KEY_{number}"]: variables[f"GIT_CONFIG_VALUE_{number}"]
            for number in range(int(variables["GIT_CONFIG_COUNT"]))
        }
        assert settings["core.hooksPath"] == "/dev/null"
        assert settings["core.fsmonitor"] == "false"
        assert settings["safe.bareRepository"] == "explicit"
        if call["argv"] != ["version"]:
            assert call["argv"][0].startswith("--git-dir=")
            assert call["argv"][1].startswith("--work-tree=")
            assert call["argv"][2:4] == ["-C", call["argv"][1].removeprefix("--work-tree=")]
        command = next(argument for argument in call["argv"][4:] or call["argv"] if not argument.startswith("-"))
        if command not in {"update-index", "hash-object", "check-ignore", "cat-file", "unpack-objects"}:
            assert call["stdin"] == "/dev/null"


def test_SEC_01_no_other_module_starts_git() -> None:
    root = Path(outpost_lsp.__file__).parent
    names = {
        "open_process",
        "create_subprocess_exec",
        "create_subprocess_shell",
        "Popen",
        "posix_spawn",
        "execv",
        "popen",
    }
    starters = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in names:
                starters.add(path.relative_to(root).as_posix())
    assert starters == {"worktrees/git.py", "sandbox/process.py"}


async def test_SEC_02_r01_no_program_of_the_repository_starts_and_the_work_is_right(
    case: Callable[[str], Case], tmp_path: Path
) -> None:
    hostile = case("r01")
    markers = Path(hostile.facts["markers"])
    before = hostile.state()
    found = await find_repository(hostile.path)
    snapshot = await take_snapshot(found, unsaved={"unsaved.txt": "text\n"})
    tree = hostile.tree(snapshot.commit)
    assert b"line two" in tree["a.txt"]
    assert b"line five" in tree["a.txt"]
    assert b"record 2" in tree["b.dat"]
    assert tree["new.txt"] == b"untracked\n"
    worktree = await open_worktree(found, snapshot.commit, tmp_path / "trees", run_id="run")
    text = (worktree.directory / "a.txt").read_text()
    assert "line five" in text
    (worktree.directory / "a.txt").write_text(text.replace("line 6", "line six"))
    (worktree.directory / "added.txt").write_text("added\n")
    (worktree.directory / "b.dat").write_text("record 3\n")
    changes = await change_set(worktree.repository, snapshot.commit)
    assert [file.path for file in changes.files] == ["a.txt", "added.txt", "b.dat"]
    assert b"+line six" in await patch(found, snapshot.commit, changes.commit, max_output=1_000_000)
    assert dict((await changed_files_and_lines(found, snapshot.commit, changes.commit))[1])["added.txt"] == ((0, 1),)
    await changed_files(found, snapshot.head, snapshot.commit)
    for arguments in (
        ["status"],
        ["diff"],
        ["diff", "HEAD~1"],
        ["log", "-p", "-2", "--format=%G? %s"],
        ["show", "HEAD"],
        ["diff-tree", "-p", "HEAD~1", "HEAD"],
        ["grep", "-n", "line"],
    ):
        result = await run_git(worktree.repository, arguments)
        assert result.status == 0, result.stderr
    await worktree.close(keep=False)
    await reap(found, tmp_path / "trees")
    assert list(markers.iterdir()) == []
    assert hostile.state() == before


async def test_SEC_02_drivers_of_included_and_per_worktree_files_are_emptied_too(
    repository: RealRepository, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n: >> {marker}\ncat\n")
    program.chmod(0o755)
    (repository.path / ".git" / "more").write_text(
        f'[filter "a=b.c"]\n\tclean = {program}\n\tsmudge = {program}\n\trequired = true\n'
    )
    repository.git("config", "include.path", "more")
    repository.git("config", "extensions.worktreeConfig", "true")
    (repository.path / ".git" / "config.worktree").write_text(
        f'[filter "per"]\n\tclean = {program}\n\trequired = true\n'
    )
    repository.write(".gitattributes", "*.txt filter=a=b.c\n*.md filter=per\n")
    repository.write("a.txt", "changed\n")
    repository.write("b.md", "new\n")
    found = await find_repository(repository.path)
    snapshot = await take_snapshot(found)
    listing = await run_git(found, ["ls-tree", "--name-only", snapshot.commit])
    assert listing.stdout == b".gitattributes\na.txt\nb.md\nsrc\n"
    worktree = await open_worktree(found, snapshot.commit, tmp_path / "trees", run_id="run")
    assert (worktree.directory / "a.txt").read_text() == "changed\n"
    assert not marker.exists()


async def test_SEC_02_a_driver_that_appears_later_is_emptied_by_the_next_call(
    repository: RealRepository, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    found = await find_repository(repository.path)
    repository.git("config", "filter.late.clean", f"touch {marker}; cat")
    repository.write(".gitattributes", "*.txt filter=late\n")
    repository.write("a.txt", "changed\n")
    await take_snapshot(found)
    assert not marker.exists()


async def test_SEC_02_git_is_not_started_inside_nested_repositories(repository: RealRepository, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    inner = make_repository(repository.path / "inner", {"x.txt": "x\n", ".gitattributes": "*.txt filter=evil\n"})
    repository.git("-c", "advice.addEmbeddedRepo=false", "add", "inner")
    repository.git("config", "-f", ".gitmodules", "submodule.inner.path", "inner")
    repository.git("config", "-f", ".gitmodules", "submodule.inner.url", "./inner")
    repository.git("config", "-f", ".gitmodules", "submodule.inner.ignore", "none")
    repository.commit_all("with a submodule")
    inner.git("config", "filter.evil.clean", f"touch {marker}; cat")
    inner.git("config", "core.fsmonitor", f"touch {marker}; false")
    inner.write("x.txt", "y\n")
    found = await find_repository(repository.path)
    await take_snapshot(found)
    for command in ("status", "diff"):
        assert (await run_git(found, [command])).status == 0
    assert not marker.exists()


async def test_SEC_05_a_remote_is_never_asked(repository: RealRepository, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    repository.git("config", "remote.origin.url", f"ext::sh -c 'touch {marker}'")
    repository.git("config", "protocol.ext.allow", "always")
    found = await find_repository(repository.path)
    for url in ("origin", f"ext::sh -c 'touch {marker}'", str(repository.path)):
        result = await run_git(found, ["fetch", url])
        assert result.status != 0
        assert "not allowed" in result.stderr
    assert not marker.exists()


async def test_a_pathspec_is_a_name_unless_the_caller_builds_a_pattern(repository: RealRepository) -> None:
    repository.write("*.txt", "star\n")
    repository.commit_all()
    found = await find_repository(repository.path)
    literal = await run_git(found, ["ls-files", "--", "*.txt"])
    assert literal.stdout == b"*.txt\n"
    pattern = await run_git(found, ["ls-files", "--", ":(glob)*.txt"], glob_pathspecs=True)
    assert pattern.stdout == b"*.txt\na.txt\n"


async def test_GIT_01_output_is_cut_at_its_limit_and_says_so(repository: RealRepository) -> None:
    repository.write("big.txt", "x" * 100_000)
    repository.commit_all()
    found = await find_repository(repository.path)
    result = await run_git(found, ["show", "HEAD:big.txt"], max_output=1_000)
    assert (result.status, len(result.stdout), result.truncated) == (0, 1_000, True)
    whole = await run_git(found, ["show", "HEAD:big.txt"], max_output=100_000)
    assert (len(whole.stdout), whole.truncated) == (100_000, False)


async def test_GIT_01_a_deadline_and_a_cancellation_end_the_process(
    repository: RealRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    real, pid = shutil.which("git"), tmp_path / "pid"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *sleep*) sleep 1000 & echo $$ > {pid}; sleep 1000;; *) exec {real} "$@";; esac\n'
    )
    program.chmod(0o755)
    host = host_environment()
    found = await find_repository(repository.path, {**host, "PATH": f"{program.parent}:{host['PATH']}"})
    start = os.posix_spawn

    def started(*arguments: Any, **more: Any) -> int:
        """The deadline begins after this: it is over a program that runs, however slow the machine is to start it."""
        process = start(*arguments, **more)
        while not (pid.exists() and pid.read_text().endswith("\n")):
            time.sleep(0.01)
        return process

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_spawn", started)
        with pytest.raises(OutpostError, match=r"^git sleep took longer than 0\.3 s") as caught:
            await run_git(found, ["sleep"], deadline_s=0.3)
    assert caught.value.code == "timeout"
    await _until_the_group_is_gone(int(pid.read_text()))
    pid.unlink()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_git, found, ["sleep"])
        while not (pid.exists() and pid.read_text().endswith("\n")):
            await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    await _until_the_group_is_gone(int(pid.read_text()))


async def test_check_turns_a_failure_into_a_fault_with_gits_words(repository: RealRepository) -> None:
    found = await find_repository(repository.path)
    with pytest.raises(OutpostError, match="git cat-file failed: fatal: Not a valid object name nope") as caught:
        await run_git(found, ["cat-file", "-t", "nope"], check=True)
    assert caught.value.code == "workspace"
    assert (await run_git(found, ["cat-file", "-t", "nope"])).status == 128


def test_every_free_named_program_is_overridden_and_the_rest_is_left() -> None:
    lines = {
        "filter.lfs.process": "x",
        "diff.image.textconv": "x",
        "merge.mine.driver": "x",
        "credential.https://example.invalid.helper": "x",
        "pager.log": "x",
        "hook.evil.command": "x",
        "diff.algorithm": "patience",
        "user.name": "somebody",
    }
    listing = b"".join(f"local\0file:.git/config\0{key}\n{value}\0".encode() for key, value in lines.items())
    settings = parse_configuration(listing + b"command\0command line:\0filter.mine.clean\nx\0")
    overrides = dict(disarmed(settings))
    assert overrides["filter.lfs.process"] == overrides["filter.lfs.clean"] == ""
    assert overrides["filter.lfs.required"] == "false"
    assert overrides["diff.image.textconv"] == ""
    assert overrides["merge.mine.driver"] == ""
    assert overrides["credential.https://example.invalid.helper"] == ""
    assert overrides["pager.log"] == "false"
    assert overrides["hook.evil.enabled"] == "false"
    assert not {key for key in overrides if key.startswith(("user", "diff.algorithm", "filter.mine"))}


def test_only_an_identity_may_be_added_to_gits_own_variables() -> None:
    assert variables({}, (), extra={"GIT_AUTHOR_NAME": "x"})["GIT_AUTHOR_NAME"] == "x"
    with pytest.raises(ValueError, match="GIT_DIR"):
        variables({}, (), extra={"GIT_DIR": "x"})


async def _until_the_group_is_gone(group: int) -> None:
    with anyio.fail_after(30):
        while not _group_is_gone(group):
            await anyio.sleep(0.01)


def _group_is_gone(group: int) -> bool:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != b"Z":
            return False
    return True


async def test_a_git_to_talk_with_that_cannot_be_started_is_told_as_one_that_is_asked_once(
    repository: RealRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await find_repository(repository.path)

    async def told_when(error: OSError) -> str:
        def refused(*_arguments: object, **_more: object) -> int:
            raise error

        async def talk() -> None:
            async with open_git(found, ["cat-file", "--batch"]):
                pass

        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_spawn", refused)
            with pytest.raises(OutpostError) as fault:
                await talk()
        assert fault.value.code == "workspace"
        return fault.value.message

    assert await told_when(OSError(errno.EMFILE, os.strerror(errno.EMFILE))) == (
        "git could not be started: Too many open files; raise this process's limit of open files (ulimit -n)."
    )
    assert await told_when(PermissionError(errno.EACCES, os.strerror(errno.EACCES))) == (
        "git could not be started: Permission denied."
    )
    assert "git was not found in PATH" in await told_when(FileNotFoundError(errno.ENOENT, "no such file", "git"))


async def test_a_git_to_talk_with_whose_folder_is_gone_says_so(repository: RealRepository, tmp_path: Path) -> None:
    found = await find_repository(repository.path)
    head = await resolve_commit(found, "HEAD")
    repository.path.rename(tmp_path / "away")
    with pytest.raises(OutpostError, match=re.escape(f"The folder {repository.path} is gone.")):
        async with object_reader(found) as reader:
            await reader.read(head)


async def test_a_program_in_the_place_of_git_is_named_with_the_remedy(
    repository: RealRepository, tmp_path: Path
) -> None:
    program, real, host = tmp_path / "git", shutil.which("git"), host_environment()
    environment = {**host, "PATH": f"{tmp_path}:{host['PATH']}"}
    told = re.escape(
        f"{program} does not answer as git does; put git 2.38 or newer in its place, or before it in PATH."
    )
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    with pytest.raises(OutpostError, match=told):
        await find_repository(repository.path, environment)
    program.write_text(f'#!/bin/sh\ncase "$*" in *cat-file*) echo hello blob 5;; *) exec {real} "$@";; esac\n')
    found = await find_repository(repository.path, environment)
    oid = repository.git("rev-parse", "HEAD:a.txt")
    async with object_reader(found) as reader:
        with pytest.raises(OutpostError, match=told):
            await reader.read(oid)
    async with _converted_reader(found) as converted:
        with pytest.raises(OutpostError, match=told):
            await converted.read(oid, "a.txt")


async def test_what_is_missing_does_not_answer_for_what_is_asked_next(repository: RealRepository) -> None:
    found = await find_repository(repository.path)
    oid, absent = repository.git("rev-parse", "HEAD:a.txt"), "1" * 40
    async with object_reader(found) as reader, _converted_reader(found) as converted:
        for reading in (reader.read(absent), converted.read(absent, "a.txt")):
            with pytest.raises(OutpostError, match="is missing in the repository"):
                await reading
        assert (await reader.read(oid))[1] == await converted.read(oid, "a.txt") == b"one\ntwo\nthree\n"
