from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.git import find_repository, resolve_commit, run_git
from outpost_lsp.worktrees.hardening import host_environment
from tests.support.repositories import RealRepository, make_repository


async def refusal(folder: Path, environment: Mapping[str, str] | None = None) -> str:
    with pytest.raises(OutpostError) as caught:
        await find_repository(folder, environment)
    assert caught.value.code == "workspace"
    assert "\n" not in caught.value.message
    assert "fatal" not in caught.value.message
    return caught.value.message


async def test_a_folder_inside_a_repository_is_found_with_its_prefix(repository: RealRepository) -> None:
    found = await find_repository(repository.path / "src")
    assert found.top == repository.path
    assert found.git_dir == found.common_dir == repository.path / ".git"
    assert found.prefix == "src"


async def test_a_link_to_a_repository_leads_to_the_repository_itself(
    repository: RealRepository, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(repository.path)
    assert (await find_repository(tmp_path / "link")).top == repository.path


async def test_a_linked_worktree_has_its_own_git_directory(repository: RealRepository, tmp_path: Path) -> None:
    repository.git("worktree", "add", "-q", "--detach", str(tmp_path / "other"))
    found = await find_repository(tmp_path / "other")
    assert found.is_linked
    assert found.common_dir == repository.path / ".git"
    assert found.git_dir == repository.path / ".git" / "worktrees" / "other"
    assert (await run_git(found, ["rev-parse", "HEAD"])).stdout.decode().strip() == repository.head


async def test_a_submodule_is_a_repository_of_its_own(repository: RealRepository, tmp_path: Path) -> None:
    outer = make_repository(tmp_path / "outer", {"x": "x"})
    outer.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repository.path), "inner")
    found = await find_repository(outer.path / "inner")
    assert found.top == outer.path / "inner"
    assert found.git_dir == outer.path / ".git" / "modules" / "inner"


async def test_a_missing_folder_a_file_and_a_plain_folder_are_refused_in_one_sentence(tmp_path: Path) -> None:
    assert "does not exist" in await refusal(tmp_path / "missing")
    (tmp_path / "file").write_text("x")
    assert "is not a folder" in await refusal(tmp_path / "file")
    (tmp_path / "plain").mkdir()
    assert "not in a git repository" in await refusal(tmp_path / "plain")


async def test_a_git_folder_that_cannot_be_looked_at_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / ".git").symlink_to("a" * 300)  # Permissions would not stop root.
    told = f"{tmp_path / '.git'} cannot be read: File name too long; check the permissions of {tmp_path}."
    assert await refusal(tmp_path) == told


async def test_a_bare_repository_is_refused_by_name(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "bare")], check=True)
    assert "bare repository" in await refusal(tmp_path / "bare")


async def test_a_checkout_whose_git_folder_is_bare_is_refused(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "top" / ".bare")], check=True)
    (tmp_path / "top" / ".git").write_text("gitdir: ./.bare\n")
    assert "bare repository" in await refusal(tmp_path / "top")


async def test_SEC_04_a_bare_repository_inside_the_tree_does_not_redirect(repository: RealRepository) -> None:
    evil = repository.path / "vendor"
    subprocess.run(["git", "init", "-q", "--bare", str(evil)], check=True)
    (evil / "deeper").mkdir()
    assert (await find_repository(evil / "deeper")).top == repository.path


async def test_SEC_04_a_redirected_work_tree_is_refused_and_the_other_folder_stays(
    repository: RealRepository, tmp_path: Path
) -> None:
    other = make_repository(tmp_path / "other", {"keep.txt": "keep\n"})
    before = other.state()
    repository.git("config", "core.worktree", str(other.path))
    message = await refusal(repository.path)
    assert "core.worktree" in message
    assert str(other.path) in message
    assert other.state() == before


async def test_SEC_04_inherited_git_variables_do_not_redirect(
    repository: RealRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_repository(tmp_path / "other", {"keep.txt": "keep\n"})
    for name in ("GIT_DIR", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, str(other.path / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.path))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.path / ".git" / "index"))
    found = await find_repository(repository.path)
    listing = await run_git(found, ["ls-files"])
    assert listing.stdout == b"a.txt\nsrc/main.py\n"


async def test_a_git_file_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / ".git").write_text("gitdir: ../nowhere\n")
    assert "does not name a git directory" in await refusal(tmp_path / "torn")


async def test_the_git_directory_itself_is_no_workspace(repository: RealRepository) -> None:
    assert "inside a git directory" in await refusal(repository.path / ".git" / "hooks")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
async def test_SEC_04_a_repository_of_another_owner_is_refused_unless_the_user_lists_it(
    repository: RealRepository, private_home: Path
) -> None:
    for path in (repository.path, repository.path / ".git"):
        os.chown(path, 12345, 12345)
    message = await refusal(repository.path)
    assert "owned by another user" in message
    assert f"git config --global --add safe.directory {repository.path}" in message
    # What the repository says of itself does not count.
    with (repository.path / ".git" / "config").open("a") as config:
        config.write(f"[safe]\n\tdirectory = {repository.path}\n")
    await refusal(repository.path)
    (private_home / ".gitconfig").write_text(f"[safe]\n\tdirectory = {repository.path}\n")
    assert (await find_repository(repository.path)).top == repository.path
    (private_home / ".gitconfig").write_text(f"[safe]\n\tdirectory = {repository.path}\n\tdirectory =\n")
    await refusal(repository.path)


async def test_a_missing_git_and_an_old_one_are_named_with_the_remedy(
    repository: RealRepository, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    environment = {**host_environment(), "PATH": str(tmp_path / "bin")}
    assert "git was not found in PATH" in await refusal(repository.path, environment)
    program = tmp_path / "bin" / "git"
    program.write_text("#!/bin/sh\necho git version 2.11.0\n")
    program.chmod(0o755)
    assert "git 2.11 is too old; install git 2.38 or newer" in await refusal(repository.path, environment)


async def test_a_broken_configuration_is_said_in_gits_own_words(repository: RealRepository) -> None:
    (repository.path / ".git" / "config").write_text("[core\n")
    with pytest.raises(OutpostError) as caught:
        await find_repository(repository.path)
    assert caught.value.code == "workspace"
    assert "bad config line 1" in caught.value.message


@pytest.mark.parametrize("revision", ["--output=x", "-foo", "", " ", "a\nb", "a\0b", "no-such", "HEAD:a.txt"])
async def test_SEC_03_an_unsafe_or_unknown_revision_is_refused_and_no_file_appears(
    repository: RealRepository, revision: str
) -> None:
    found = await find_repository(repository.path)
    before = repository.state()
    with pytest.raises(OutpostError) as caught:
        await resolve_commit(found, revision)
    assert caught.value.code == "configuration"
    assert caught.value.details["revision"] == revision
    assert repository.state() == before


async def test_a_revision_resolves_to_the_commit_also_through_a_tag(repository: RealRepository) -> None:
    repository.git("tag", "-a", "v1", "-m", "one")
    found = await find_repository(repository.path)
    assert await resolve_commit(found, "v1") == repository.head
    assert await resolve_commit(found, "main") == repository.head


async def test_a_repository_that_is_found_again_has_its_configuration_read_again_when_that_changed(
    repository: RealRepository, tmp_path: Path
) -> None:
    program, calls = tmp_path / "bin" / "git", tmp_path / "calls"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" >> {calls}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    host = host_environment()
    environment = {**host, "PATH": f"{program.parent}:{host['PATH']}"}

    async def readings() -> int:
        await find_repository(repository.path, environment)
        return sum(" config " in f"{call} " for call in calls.read_text().splitlines())

    assert [await readings(), await readings()] == [1, 1]
    repository.git("config", "filter.later.clean", "touch owned")
    assert await readings() == 2
    found = await find_repository(repository.path, environment)
    assert ("filter.later.clean", "") in found.overrides.values
