"""What an agent changed: shown, applied, dropped, brought back, replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.conftest import Program
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

NEW_TEXT = "shop\nchanged by an agent\n"


def changed(program: Program, project: RealRepository, *options: str, **files: str) -> Any:
    """A run whose agent wrote these files (path to content, `__` for a slash); its record."""
    wanted = files or {"README.md": NEW_TEXT}
    calls = [
        {"name": "write_file", "input": {"path": path.replace("__", "/"), "content": content}}
        for path, content in wanted.items()
    ]
    with ModelServer([Answer(calls=calls), "Done."]) as server:
        program.use_model(server.base_url)
        ended = program("run", "fixer", "change it", "--json", *options, cwd=project.path)
        assert not server.unanswered
    return ended.json


def disposition(program: Program, project: RealRepository, run: Any) -> str:
    [found] = [one for one in program("runs", "--json", cwd=project.path).json if one["id"] == run["id"]]
    return str(found["disposition"])


def test_nothing_of_a_run_shows_in_the_users_repository_before_it_is_applied(
    program: Program, project: RealRepository
) -> None:
    before = project.state()
    run = changed(program, project)
    assert (run["disposition"], run["changes"]) == ("pending", {"files": 1, "insertions": 1, "deletions": 0})
    assert project.state() == before
    checks = {check["name"]: check for check in program("doctor", "--json", cwd=project.path).json["checks"]}
    assert checks["leftovers"]["status"] == "ok"  # Its worktree waits for a person; there is nothing to clean.
    assert checks["leftovers"]["detail"].endswith("1 run has changes to apply or discard")


def test_the_diff_is_a_patch_that_git_can_apply(program: Program, project: RealRepository) -> None:
    run = changed(program, project)
    patch = program("diff", run["id"], cwd=project.path)
    assert patch.status == 0
    project.git("apply", "--check", "-", stdin=patch.out.encode())
    assert "+changed by an agent" in patch.out


def test_applying_writes_the_files_and_ends_the_worktree(program: Program, project: RealRepository) -> None:
    run = changed(program, project)
    ended = program("apply", run["id"], cwd=project.path)
    assert (ended.status, ended.out) == (0, "applied README.md\n")
    assert (project.path / "README.md").read_text("utf-8") == NEW_TEXT
    assert disposition(program, project, run) == "applied"
    assert len(project.git("worktree", "list").splitlines()) == 1
    again = program("apply", run["id"], cwd=project.path)
    assert (again.status, again.out) == (0, "already applied README.md\n")


def test_quiet_says_nothing_of_what_went_as_it_should(program: Program, project: RealRepository) -> None:
    with ModelServer(
        [Answer(calls=[{"name": "write_file", "input": {"path": "a", "content": "b"}}]), "Done."]
    ) as server:
        program.use_model(server.base_url)
        ended = program("run", "fixer", "change it", "--quiet", cwd=project.path)
    assert (ended.status, ended.out, ended.err) == (0, "Done.\n", "")
    [run] = program("runs", "--json", cwd=project.path).json
    ended = program("apply", run["id"], "--quiet", cwd=project.path)
    assert (ended.status, ended.out, ended.err) == (0, "", "")
    assert (project.path / "a").read_text("utf-8") == "b"


def test_run_with_apply_applies_at_once(program: Program, project: RealRepository) -> None:
    run = changed(program, project, "--apply")
    assert run["disposition"] == "applied"
    assert (project.path / "README.md").read_text("utf-8") == NEW_TEXT


def test_edits_made_meanwhile_are_kept_when_they_fit(program: Program, project: RealRepository) -> None:
    project.write("long.txt", "".join(f"line {number}\n" for number in range(40)))
    text = (project.path / "long.txt").read_text("utf-8")
    run = changed(program, project, **{"long.txt": text.replace("line 35\n", "line thirty-five\n")})
    project.write("long.txt", text.replace("line 2\n", "line two\n"))
    assert program("apply", run["id"], cwd=project.path).status == 0
    merged = (project.path / "long.txt").read_text("utf-8")
    assert "line two\n" in merged
    assert "line thirty-five\n" in merged


def test_SEC_23_a_conflict_in_one_file_leaves_all_as_they_are(program: Program, project: RealRepository) -> None:
    run = changed(program, project, **{"README.md": NEW_TEXT, "other.txt": "new\n"})
    project.write("README.md", "something else\n")
    ended = program("apply", run["id"], cwd=project.path)
    assert ended.status == 3
    assert "README.md" in ended.err
    assert (project.path / "README.md").read_text("utf-8") == "something else\n"
    assert not (project.path / "other.txt").exists()
    assert disposition(program, project, run) == "pending"


def test_single_files_can_be_applied_and_the_run_stays_pending_until_all_are(
    program: Program, project: RealRepository
) -> None:
    run = changed(program, project, **{"README.md": NEW_TEXT, "other.txt": "new\n"})
    assert program("apply", run["id"], "other.txt", cwd=project.path).out == "applied other.txt\n"
    assert disposition(program, project, run) == "pending"
    assert program("apply", run["id"], "nothing.txt", cwd=project.path).status == 2
    assert program("apply", run["id"], cwd=project.path).status == 0
    assert disposition(program, project, run) == "applied"


def test_SEC_09_files_that_make_programs_act_wait_until_they_are_named(
    program: Program, project: RealRepository
) -> None:
    run = changed(program, project, **{"README.md": NEW_TEXT, ".vscode__tasks.json": "{}\n"})
    ended = program("apply", run["id"], cwd=project.path)
    assert ended.status == 0
    assert ".vscode/tasks.json" in ended.err
    assert not (project.path / ".vscode").exists()
    assert disposition(program, project, run) == "pending"
    assert program("apply", run["id"], ".vscode/tasks.json", cwd=project.path).status == 0
    assert (project.path / ".vscode" / "tasks.json").exists()
    assert disposition(program, project, run) == "applied"


def test_paths_to_apply_are_relative_to_where_the_person_is_as_those_to_review_are(
    program: Program, project: RealRepository
) -> None:
    shop = project.path / "shop"
    run = changed(program, project, **{"README.md": NEW_TEXT, "shop__new__one.py": "ONE = 1\n", ".envrc": "x\n"})
    assert program("apply", run["id"], "shop/new/one.py", cwd=shop).status == 2
    assert program("apply", run["id"], "../../outside", cwd=shop).status == 2
    ended = program("apply", run["id"], "new/one.py", cwd=shop)
    assert (ended.status, ended.out) == (0, "applied shop/new/one.py\n")
    ended = program("apply", run["id"], "../README.md", "-C", "shop", cwd=project.path)
    assert (ended.status, ended.out) == (0, "applied README.md\n")
    ended = program("apply", run["id"], cwd=shop)
    assert f"outpost-lsp apply {run['id']} ../.envrc\n" in ended.err
    assert program("apply", run["id"], "../.envrc", cwd=shop).out == "applied .envrc\n"


def test_discarded_changes_can_be_reopened_although_the_worktree_and_its_objects_are_gone(
    program: Program, project: RealRepository
) -> None:
    run = changed(program, project)
    assert program("discard", run["id"], cwd=project.path).status == 0
    assert disposition(program, project, run) == "discarded"
    assert len(project.git("worktree", "list").splitlines()) == 1
    project.git("gc", "--quiet", "--prune=now")
    assert "no changes to discard" in program("discard", run["id"], cwd=project.path).out
    assert program("reopen", run["id"], cwd=project.path).status == 0
    assert disposition(program, project, run) == "pending"
    assert program("apply", run["id"], cwd=project.path).status == 0
    assert (project.path / "README.md").read_text("utf-8") == NEW_TEXT


def test_a_run_without_changes_has_nothing_to_apply_or_reopen(program: Program, project: RealRepository) -> None:
    program("review", cwd=project.path)
    [run] = program("runs", "--json", cwd=project.path).json
    assert program("diff", run["id"], cwd=project.path).out == ""
    assert program("apply", run["id"], cwd=project.path).status == 2
    assert program("reopen", run["id"], cwd=project.path).status == 2
    assert program("diff", "nothing", cwd=project.path).status == 2


def test_SEC_24_what_is_applied_is_what_was_shown_whatever_happened_to_the_worktree_since(
    program: Program, project: RealRepository
) -> None:
    run = changed(program, project)
    [worktree] = [
        line.split()[0] for line in project.git("worktree", "list").splitlines() if str(project.path) != line.split()[0]
    ]
    (Path(worktree) / "README.md").write_text("changed later\n", "utf-8")
    assert "changed later" not in program("diff", run["id"], cwd=project.path).out
    program("apply", run["id"], cwd=project.path)
    assert (project.path / "README.md").read_text("utf-8") == NEW_TEXT


def test_RPL_01_a_replay_asks_no_service_and_reports_what_was_recorded(
    program: Program, project: RealRepository
) -> None:
    run = changed(program, project)
    with ModelServer(["never"]) as server:
        program.use_model(server.base_url)
        ended = program("replay", run["id"], "--json", cwd=project.path)
        assert server.requests == []
    assert ended.status == 0
    assert (ended.json["kind"], ended.json["text"]) == ("replay", "Done.")
    assert ended.json["usage"] == run["usage"]
    assert ended.json["changes"] == run["changes"]
    assert program("replay", "nothing", cwd=project.path).status == 2


def test_a_replayed_review_reports_its_findings_again_and_publishes_none(
    program: Program, project: RealRepository
) -> None:
    program("review", cwd=project.path)
    [run] = program("runs", "--json", cwd=project.path).json
    ended = program("replay", run["id"], "--json", cwd=project.path)
    assert (ended.status, ended.json["findings"]) == (0, 1)


def test_what_a_killed_run_had_changed_is_offered_at_the_next_start(program: Program, project: RealRepository) -> None:
    call = {"name": "write_file", "input": {"path": "README.md", "content": NEW_TEXT}}
    with ModelServer([Answer(calls=[call]), Answer(text="never ends", hang_after=1)]) as server:
        program.use_model(server.base_url)
        with program.started("run", "fixer", "change it", cwd=project.path) as process:
            server.wait_for(lambda: len(server.requests) == 2)
            process.kill()
            process.wait(timeout=60)
    program("runs", cwd=project.path)
    [run] = program("runs", "--json", cwd=project.path).json
    assert (run["status"], run["disposition"], run["changes"]["files"]) == ("interrupted", "pending", 1)
    assert run["usage"] == {"input": 10, "cached": 0, "output": 5, "complete": False}, "the receipt is in the journal"
    assert run["models"] == ["small"]
    shown = program("show", run["id"], cwd=project.path).out
    assert "at least 10 in, 5 out" in shown
    assert "fixer step 2, tokens unknown" in shown
    assert program("apply", run["id"], cwd=project.path).status == 0
    assert (project.path / "README.md").read_text("utf-8") == NEW_TEXT


def test_SNAP_09_an_agent_changes_a_copy_of_a_plain_folder_until_it_is_applied(
    program: Program, project: RealRepository
) -> None:
    folder = project.path.parent / "plain"
    folder.mkdir()
    (folder / "README.md").write_text("shop\n", "utf-8")
    run = changed(program, RealRepository(folder))
    assert run["disposition"] == "pending"
    assert (folder / "README.md").read_text("utf-8") == "shop\n"
    assert "+changed by an agent" in program("diff", run["id"], cwd=folder).out
    assert program("apply", run["id"], cwd=folder).out == "applied README.md\n"
    assert (folder / "README.md").read_text("utf-8") == NEW_TEXT
    assert "+changed by an agent" in program("diff", run["id"], cwd=folder).out  # As in a repository.
    assert program("apply", run["id"], cwd=folder).status == 2
    assert program("reopen", run["id"], cwd=folder).status == 0
    (folder / "README.md").write_text("shop\n", "utf-8")
    assert "+changed by an agent" in program("diff", run["id"], cwd=folder).out
    assert program("apply", run["id"], cwd=folder).out == "applied README.md\n"
    assert (folder / "README.md").read_text("utf-8") == NEW_TEXT
