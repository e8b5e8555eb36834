"""`outpost-lsp review` as a person or a pipeline runs it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from outpost_lsp.cli.report import ReviewedFiles, refuse_output, write_report
from outpost_lsp.domain.run import Run
from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.findings import FindingStore
from outpost_lsp.storage.layout import Layout
from tests.cli.conftest import PATIENCE_S, Program, wait_until
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository, make_repository

SLIP = "print(undefined_name)\n"


def test_the_default_reviews_uncommitted_work_and_ends_with_1_for_an_error(
    program: Program, project: RealRepository
) -> None:
    before = project.state()
    ended = program("review", cwd=project.path)
    assert ended.status == 1
    assert ended.out.startswith("shop/orders.py:2:5: error: ")
    assert "    2 |     return math.pi * r\n      |     ^^^^" in ended.out
    assert ended.out.rstrip().endswith("1 finding: 1 error")
    assert "Review of the uncommitted changes: succeeded" in ended.err
    assert project.state() == before


def test_a_change_without_faults_ends_with_0_and_says_that_nothing_was_found(
    program: Program, project: RealRepository
) -> None:
    project.write("shop/orders.py", "def area(r):\n    return 3 * r\n")
    ended = program("review", cwd=project.path)
    assert ended.status == 0
    assert ended.out.rstrip().endswith("No findings.")


def test_no_change_at_all_ends_with_0_at_once_and_a_note_says_so(program: Program, project: RealRepository) -> None:
    project.commit_all()
    ended = program("review", "--format", "json", cwd=project.path)
    assert ended.status == 0
    assert ended.json["findings"] == []
    assert any("there are no uncommitted changes" in note for note in ended.json["run"]["notes"])


def test_fail_on_decides_which_findings_make_a_pipeline_fail(program: Program, project: RealRepository) -> None:
    assert program("review", "--fail-on", "never", cwd=project.path).status == 0
    project.write(
        "shop/orders.py",
        "import math\n\n\ndef area(r):\n    try:\n        return math.pi * r\n    except:\n        return 0\n",
    )
    assert program("review", cwd=project.path).status == 0
    assert program("review", "--fail-on", "warning", cwd=project.path).status == 1


def test_quiet_writes_nothing_to_standard_error(program: Program, project: RealRepository) -> None:
    assert program("review", "--quiet", cwd=project.path).err == ""


def test_it_works_from_a_folder_below_the_top_and_paths_are_relative_to_it(
    program: Program, project: RealRepository
) -> None:
    project.write("other.py", SLIP)
    ended = program("review", "orders.py", cwd=project.path / "shop")
    assert ended.status == 1
    assert "other.py" not in ended.out
    assert "2 findings" in program("review", cwd=project.path / "shop").out
    assert program("review", "-C", str(project.path), "shop", cwd=Path("/")).status == 1


SCOPES = {
    ("--staged",): ["staged.py"],
    ("--unstaged",): ["shop/orders.py"],
    ("--commit", "HEAD"): ["committed.py"],
    ("--base", "HEAD~1"): ["committed.py", "shop/orders.py", "staged.py", "untracked.py"],
    (): ["shop/orders.py", "staged.py", "untracked.py"],
    ("--all",): ["committed.py", "old.py", "shop/orders.py", "staged.py", "untracked.py"],
    ("--all", "old.py"): ["old.py"],
}


def test_each_scope_reviews_what_it_says_also_when_all_are_asked_for_at_once(program: Program, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "scopes", {"old.py": SLIP, "shop/orders.py": "x = 1\n"})
    repository.write("committed.py", SLIP)
    repository.commit_all("second")
    repository.write("staged.py", SLIP)
    repository.git("add", "staged.py")
    repository.write("shop/orders.py", SLIP)
    repository.write("untracked.py", SLIP)
    before = repository.state()
    ended = program.together(*[("review", *options, "--format", "json") for options in SCOPES], cwd=repository.path)
    top = f"{repository.path.as_uri()}/"
    found = [sorted(finding["uri"].removeprefix(top) for finding in one.json["findings"]) for one in ended]
    assert dict(zip(SCOPES, found, strict=True)) == SCOPES
    assert {one.status for one in ended} == {1}
    assert repository.state() == before
    assert len(program("runs", "--json", cwd=repository.path).json) == len(SCOPES)
    assert len(repository.git("worktree", "list").splitlines()) == 1


def test_json_has_the_records_of_the_protocol_with_utf_16_positions(program: Program, project: RealRepository) -> None:
    project.write("shop/orders.py", "text = '😀漢'; print(undefined_name)\n")
    ended = program("review", "--format", "json", cwd=project.path)
    [finding] = ended.json["findings"]
    line = "text = '😀漢'; print(undefined_name)"
    start, end = finding["range"]["start"], finding["range"]["end"]
    units = line.encode("utf-16-le")
    quoted = units[start["character"] * 2 : end["character"] * 2].decode("utf-16-le")
    assert quoted == finding["quote"]
    assert "undefined_name" in quoted
    run = ended.json["run"]
    assert (run["kind"], run["agent"], run["status"], run["findings"]) == ("review", "reviewer", "succeeded", 1)
    assert run["usage"] == {"input": 0, "cached": 0, "output": 0, "complete": True}
    assert run["base"] == project.head


def test_the_json_fits_its_schema(program: Program, project: RealRepository) -> None:
    ended = program("review", "--format", "json", cwd=project.path)
    jsonschema.validate(ended.json, program("schema", "findings").json)


def test_github_commands_name_the_file_from_the_repositorys_top(program: Program, project: RealRepository) -> None:
    ended = program("review", "--format", "github", cwd=project.path / "shop")
    assert ended.out.startswith("::error file=shop/orders.py,line=2,")
    assert ended.out.count("\n") == 1


def test_sarif_names_the_rule_the_place_and_the_version(program: Program, project: RealRepository) -> None:
    ended = program("review", "--format", "sarif", cwd=project.path)
    assert ended.status == 1
    [run] = ended.json["runs"]
    [result] = run["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "shop/orders.py"
    assert place["region"]["startLine"] == 2
    assert result["level"] == "error"
    assert program("--version").out == f"outpost-lsp {run['tool']['driver']['version']}\n"


def test_U_09_a_dismissed_finding_is_not_shown_and_stands_in_sarif_as_a_suppression_with_its_reason(
    program: Program, project: RealRepository
) -> None:
    program("review", cwd=project.path)
    layout = Layout(Path(program.environment["OUTPOST_STATE_DIR"]), Path(program.environment["OUTPOST_CACHE_DIR"]))
    store = FindingStore(layout.for_repository(project.git_dir).findings_of(project.path))
    [found] = store
    store.dismissals.dismiss(found, reason="it is meant")
    project.write("shop/orders.py", "# moved\n" * 20 + "def area(r):\n    return math.pi * r\n")
    text = program("review", cwd=project.path)
    assert text.status == 0
    assert "1 dismissed before and not shown" in text.out
    [result] = program("review", "--format", "sarif", cwd=project.path).json["runs"][0]["results"]
    assert result["suppressions"][0]["justification"] == "it is meant"
    assert program("review", "--format", "github", cwd=project.path).out == ""


def test_output_writes_a_whole_file_and_nothing_to_standard_output(
    program: Program, project: RealRepository, tmp_path: Path
) -> None:
    target = tmp_path / "report.json"
    ended = program("review", "--format", "json", "--output", str(target), cwd=project.path)
    assert ended.out == ""
    assert json.loads(target.read_text("utf-8"))["run"]["status"] == "succeeded"
    assert [path.name for path in tmp_path.glob(".report*")] == []


def test_an_output_that_cannot_be_written_is_wrong_usage(program: Program, project: RealRepository) -> None:
    ended = program("review", "-q", "--output", "missing/folder/report.txt", cwd=project.path)
    assert ended.status == 2
    assert "--output missing/folder/report.txt" in ended.err
    assert program("runs", "--json", cwd=project.path).json == [], "it is told before anything was spent"


def test_an_output_that_is_a_folder_is_refused_and_a_pipe_or_a_link_is_kept(tmp_path: Path) -> None:
    run = Run(
        id="1",
        kind="review",
        agent="reviewer",
        title="A review",
        workspace="/w",
        status="succeeded",
        started_at="2026-01-01T00:00:00Z",
    )

    def write(output: Path) -> None:
        refuse_output(str(output))
        write_report(run, [], ReviewedFiles(tmp_path, {}), top=tmp_path, form="text", output=str(output))

    with pytest.raises(OutpostError, match="Is a directory"):
        write(tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)) as reader:
        write(pipe)
        assert reader.read() == "No findings.\n"
    assert pipe.is_fifo()
    (tmp_path / "link").symlink_to("there.txt")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there.txt").read_text() == "No findings.\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe", "there.txt"]


WRONG = {
    ("--base", "nowhere"): "base",
    ("--commit", "nowhere"): "revision",
    ("--base", "--output=x"): "--base",
    ("--commit=-foo",): "revision",
    ("nothing.py",): "nothing.py",
    ("../outside.py",): "outside.py",
    ("--agent", "nobody"): "nobody",
    ("--fail-on", "bad"): "--fail-on",
    ("--staged", "--all"): "--all",
    ("--format", "xml"): "--format",
    ("--set", "runs.concurrency"): "--set",
    ("-C", "/no/such/folder"): "/no/such/folder",
    # A name that no file can have.
    ("-C", "a" * 300): "cannot be looked at (File name too long); name an existing folder",
    ("b" * 300,): "b in what is reviewed",
    # What a script's unset variable leaves.
    ("",): "PATH: it is empty",
    ("--base", ""): "--base: it is empty",
    ("--commit", ""): "--commit: it is empty",
    ("--agent", ""): "--agent: it is empty",
    ("-C", ""): "-C: it is empty",
    ("--output", ""): "--output: it is empty",
    ("--patch", ""): "--patch: it is empty; give it a value, or leave it out",
}


def test_wrong_usage_ends_with_2_and_one_sentence_that_names_it(program: Program, project: RealRepository) -> None:
    ended = program.together(*[("review", *options) for options in WRONG], cwd=project.path)
    for (options, word), one in zip(WRONG.items(), ended, strict=True):
        assert (one.status, one.out) == (2, ""), options
        assert word in one.err, options
        assert len(one.err.strip().splitlines()) == 1, options
    assert not (project.path / "x").exists()
    assert program("runs", "--json", cwd=project.path).json == []


def test_a_folder_without_a_repository_ends_with_2_and_says_what_works(program: Program, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    ended = program("review", cwd=folder)
    assert ended.status == 2
    assert "not a git repository" in ended.err
    assert "--all" in ended.err


def test_SNAP_09_a_plain_folder_is_reviewed_as_a_whole_and_left_as_it_is(program: Program, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.py").write_text(SLIP, "utf-8")
    ended = program("review", "--all", "--format", "json", cwd=folder)
    assert ended.status == 1
    [finding] = ended.json["findings"]
    assert finding["uri"] == (folder / "sub" / "a.py").as_uri()
    assert sorted(path.name for path in folder.rglob("*")) == ["a.py", "sub"]
    assert program("review", "--all", "missing.py", cwd=folder).status == 2
    assert len(program("runs", "--json", cwd=folder).json) == 1


def test_a_folder_that_is_missing_or_a_file_ends_with_2_and_is_told_as_that(program: Program, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    for name, what in (("gone", "does not exist"), ("file", "is not a folder")):
        ended = program("review", "-C", str(tmp_path / name))
        assert (ended.status, ended.out) == (2, "")
        assert ended.err == f"outpost-lsp: {tmp_path / name} {what}; name an existing folder\n"


def test_a_bare_repository_ends_with_2_and_one_clear_sentence(program: Program, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "origin")
    repository.git("clone", "-q", "--bare", str(repository.path), str(tmp_path / "bare.git"))
    ended = program("review", cwd=tmp_path / "bare.git")
    assert ended.status == 2
    assert len(ended.err.strip().splitlines()) == 1
    assert "bare" in ended.err


def test_a_repository_without_commits_is_reviewed(program: Program, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "unborn", commit=False)
    repository.write("new.py", SLIP)
    ended = program("review", "--format", "json", cwd=repository.path)
    assert ended.status == 1
    assert ended.json["run"]["base"] == ""


def test_the_runs_of_the_terminal_are_the_runs_that_everybody_sees(program: Program, project: RealRepository) -> None:
    first = program("review", "--format", "json", cwd=project.path).json["run"]
    second = program("review", "--format", "json", cwd=project.path).json["run"]
    listed = program("runs", "--json", cwd=project.path).json
    assert [run["id"] for run in listed] == [second["id"], first["id"]]
    assert listed[0] == second


def test_a_models_findings_are_reported_with_its_usage(program: Program, project: RealRepository) -> None:
    report = {
        "path": "shop/orders.py",
        "quote": "return math.pi * r",
        "severity": "warning",
        "code": "wrong-area",
        "title": "The area of a circle needs the square",
        "detail": "`r` is not squared.",
        "line": 99,
        "confidence": 0.8,
        "caused_by_change": True,
    }
    with ModelServer([Answer(calls=[{"name": "report_finding", "input": report}]), "One finding."]) as server:
        program.use_model(server.base_url)
        ended = program("review", "--format", "json", "--fail-on", "warning", cwd=project.path)
        assert not server.unanswered
        assert not server.problems
    assert ended.status == 1
    [finding] = ended.json["findings"]
    assert finding["range"]["start"]["line"] == 1
    run = ended.json["run"]
    assert run["text"] == "One finding."
    assert run["usage"] == {"input": 20, "cached": 0, "output": 10, "complete": True}
    assert run["models"] == ["small"]


def test_offline_asks_no_service_whatever_is_configured(program: Program, project: RealRepository) -> None:
    with ModelServer(["never"]) as server:
        program.use_model(server.base_url)
        ended = program("review", "--offline", cwd=project.path)
        assert server.requests == []
    assert ended.status == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(status=401, json={"error": {"message": "bad key"}}), "401"),
        (Answer(status=500, body="broken"), "500"),
        (Answer(status=429, json={"error": {"message": "slow down"}}), "429"),
        (Answer(text="half an ans", cut_after=1), ""),
    ],
)
def test_a_failed_run_ends_with_3_and_one_sentence(
    program: Program, project: RealRepository, answer: Answer, words: str
) -> None:
    with ModelServer([answer]) as server:
        program.use_model(server.base_url)
        ended = program("review", "-q", "--format", "json", cwd=project.path)
    assert ended.status == 3
    assert words in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert ended.json["run"]["status"] == "failed"
    assert ended.json["run"]["error"]["message"]


def test_a_refused_connection_and_a_missing_key_end_with_3_and_say_what_to_do(
    program: Program, project: RealRepository
) -> None:
    with ModelServer() as server:
        gone = server.base_url
    program.use_model(gone)
    ended = program("review", "-q", cwd=project.path)
    assert (ended.status, ended.out) == (3, "")
    program.config.write_text(program.config.read_text("utf-8").replace('api_key_env = ""', 'api_key_env = "NO_KEY"'))
    ended = program("review", "-q", cwd=project.path)
    assert ended.status == 3
    assert "NO_KEY" in ended.err


def test_a_folders_wrong_settings_are_told_and_the_review_goes_on_with_the_good_ones(
    program: Program, project: RealRepository
) -> None:
    project.write("outpost.toml", "[review]\nmax_findings = 'many'\n")
    ended = program("review", cwd=project.path)
    assert ended.status == 1
    assert "review.max_findings" in ended.err


@pytest.mark.parametrize(
    ("own", "options"),
    [
        ("[review]\nmax_findings = 'many'\n", []),
        ("[models\n", []),
        ('[providers.main]\nkind = "openai"\nbase_url = "http://models.invalid/v1"\n', []),
        ("", ["--set", "review.max_findings=many"]),
        ("", ["--set", "review.no_such_option=1"]),
        ("", ["--set", "default_model=unknown"]),
    ],
)
@pytest.mark.parametrize("command", [["review"], ["run", "reviewer", "Look."]])
def test_wrong_settings_of_the_person_end_with_2_before_anything_runs(
    program: Program, project: RealRepository, own: str, options: list[str], command: list[str]
) -> None:
    program.config.write_text(own, "utf-8")
    ended = program(*command, *options, cwd=project.path)
    assert ended.status == 2
    assert ended.out == ""
    first, *_, last = ended.err.splitlines()
    place = "--set" if options else str(program.config)
    assert place in first
    assert last.endswith(f"mend {place}")
    program.config.write_text("", "utf-8")
    assert program("runs", "--json", cwd=project.path).json == []


def test_ctrl_c_stops_everything_and_ends_with_130(program: Program, project: RealRepository) -> None:
    with ModelServer([Answer(text="never ends", hang_after=1)]) as server:
        program.use_model(server.base_url)
        with program.started("review", cwd=project.path) as process:
            server.wait_for(lambda: len(server.requests) == 1)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "Traceback" not in errors
        server.wait_for(lambda: server.open_connections == 0)
    [run] = program("runs", "--json", cwd=project.path).json
    assert run["status"] == "cancelled"
    assert "worktree" not in project.git("worktree", "list", "--porcelain").replace(f"worktree {project.path}", "")


def test_sigterm_stops_everything_and_ends_with_143(program: Program, project: RealRepository) -> None:
    with ModelServer([Answer(text="never ends", hang_after=1)]) as server:
        program.use_model(server.base_url)
        with program.started("review", cwd=project.path) as process:
            server.wait_for(lambda: len(server.requests) == 1)
            process.terminate()
            process.communicate(timeout=60)
        assert process.returncode == 143
    [run] = program("runs", "--json", cwd=project.path).json
    assert run["status"] == "cancelled"


def test_U_14_a_killed_run_is_interrupted_at_the_next_start_and_leaves_no_worktree(
    program: Program, project: RealRepository
) -> None:
    before = project.state()
    with ModelServer([Answer(text="never ends", hang_after=1)]) as server:
        program.use_model(server.base_url)
        with program.started("review", cwd=project.path) as process:
            server.wait_for(lambda: len(server.requests) == 1)
            process.kill()
            process.wait(timeout=60)
    [run] = program("runs", "--json", cwd=project.path).json
    assert run["status"] == "interrupted"
    assert run["usage"]["complete"] is False, "what its one request used is unknown"
    wait_until(
        lambda: program("runs", cwd=project.path).status == 0 and project.git("worktree", "list").count("\n") == 0
    )
    assert project.state() == before
    project.git("fsck")


def test_a_reader_that_goes_away_is_no_fault(program: Program) -> None:
    with program.started("schema", "protocol") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


_AS_SOMEBODY_ORDINARY = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named_as_that_and_a_review_of_the_rest_goes_on(
    program: Program, project: RealRepository
) -> None:
    project.write("secret.txt", "hidden\n")
    (project.path / "secret.txt").chmod(0)
    prefix = _AS_SOMEBODY_ORDINARY if os.geteuid() == 0 else ()
    named, rest = (
        subprocess.run(
            [*prefix, sys.executable, "-m", "outpost_lsp", "review", *arguments],
            cwd=project.path,
            env=program.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        for arguments in (["-q", "secret.txt"], [])
    )
    told = "outpost-lsp: paths: secret.txt may not be read by this user; check the permissions of the file\n"
    assert (named.returncode, named.stdout, named.stderr) == (2, "", told)
    assert rest.returncode in (0, 1)
    assert "note: Left out, not a readable file: secret.txt." in rest.stderr
