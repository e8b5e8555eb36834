"""The other commands, as processes in real repositories."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import PATIENCE_S, Program
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

DELEGATION = [
    Answer(calls=[{"name": "reviewer", "input": {"prompt": "Look at the area."}}], when={"contains": "coordinate"}),
    Answer(text="It is fine.", when={"contains": "Look at the area.", "results": 0}),
    Answer(text="All is fine.", when={"results": 1}),
]


def test_the_version_is_told_without_importing_the_server_or_the_engine(program: Program) -> None:
    assert program("--version").out.startswith("outpost-lsp ")
    script = (
        "import sys, runpy; sys.argv = ['outpost-lsp', '--version']\n"
        "try: runpy.run_module('outpost_lsp', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in "
        "('pygls', 'lsprotocol', 'pydantic', 'httpx', 'anyio', 'git', 'rich')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=program.environment, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_imports_neither_server_nor_engine_and_lists_the_commands(program: Program) -> None:
    ended = program("--help")
    assert ended.status == 0
    for command in (
        "review",
        "serve",
        "run",
        "continue",
        "runs",
        "show",
        "config",
        "schema",
        "trust",
        "doctor",
        "demo",
    ):
        assert f"    {command} " in ended.out


@pytest.mark.parametrize("arguments", [["revue"], ["review", "--bass", "x"], ["runs", "--limit", "0"], ["schema"]])
def test_wrong_usage_is_one_sentence_on_standard_error_and_status_2(program: Program, arguments: list[str]) -> None:
    ended = program(*arguments)
    assert ended.status == 2
    assert ended.out == ""
    assert len(ended.err.strip().splitlines()) == 1


def test_demo_shows_a_delegation_routes_and_findings_without_touching_the_users_folders(program: Program) -> None:
    ended = program("demo")
    assert ended.status == 1
    assert "coordinator: reviewer started" in ended.err
    assert "route " in ended.err
    assert "shop/reports.py:14:5: error" in ended.out
    assert not Path(program.environment["OUTPOST_STATE_DIR"]).exists()
    assert program("demo", "--fail-on", "never", "-q").err == ""


def test_the_picture_in_the_readme_shows_what_the_demo_finds_today(program: Program) -> None:
    drawn = (Path(__file__).parents[2] / "docs" / "demo.svg").read_text("utf-8")
    shown = "".join(html.unescape(re.sub(r"<[^>]*>", "", drawn)).split())
    headlines = [line for line in program("demo").out.splitlines() if re.match(r"\S+:\d+:\d+: ", line)]
    assert len(headlines) == 7
    assert [line for line in headlines if "".join(line.split()) not in shown] == [], "run docs/record_demo.py"


def test_demo_ends_like_a_review_and_speaks_its_formats(program: Program) -> None:
    ended = program("demo", "--format", "json", "--fail-on", "never")
    assert ended.status == 0
    assert ended.json["run"]["agent"] == "coordinator"
    assert {finding["agent"] for finding in ended.json["findings"]} == {"reviewer"}


def test_run_prints_the_answer_of_any_agent(program: Program, project: RealRepository) -> None:
    with ModelServer([Answer(text="Hello there.", when={"contains": "greet"})]) as server:
        program.use_model(server.base_url)
        ended = program("run", "reviewer", "Please greet.", cwd=project.path)
    assert (ended.status, ended.out) == (0, "Hello there.\n")


def test_run_reads_its_brief_from_standard_input_and_prints_the_run_as_json(
    program: Program, project: RealRepository
) -> None:
    with ModelServer([Answer(text="Done.", when={"contains": "from a pipe"})]) as server:
        program.use_model(server.base_url)
        ended = program("run", "reviewer", "-", "--json", cwd=project.path, stdin="a brief from a pipe\n")
    assert ended.json["text"] == "Done."
    assert ended.json["kind"] == "dispatch"
    assert program("run", "reviewer", "-", cwd=project.path, stdin=" \n").status == 2


def test_run_refuses_an_agent_that_is_not_configured(program: Program, project: RealRepository) -> None:
    ended = program("run", "nobody", "x", cwd=project.path)
    assert ended.status == 2
    assert "reviewer" in ended.err


def test_a_conversation_goes_on_with_its_agent_and_a_fork_leaves_it_as_it_is(
    program: Program, project: RealRepository
) -> None:
    answers = [Answer(text="One.", when={"contains": "first"}), Answer(text="Two."), Answer(text="Fork.")]
    with ModelServer(answers) as server:
        program.use_model(server.base_url)
        first = program("run", "reviewer", "the first thing", "--json", cwd=project.path).json
        second = program("continue", first["conversation"], "go on", "--json", cwd=project.path).json
        fork = program("continue", first["id"], "otherwise", "--fork", "--json", cwd=project.path).json
        assert "the first thing" in server.requests[1].body.decode()
        assert not server.problems
    assert (second["agent"], second["kind"], second["text"]) == ("reviewer", "continue", "Two.")
    assert second["conversation"] == first["conversation"]
    assert fork["conversation"] != first["conversation"]
    assert program("continue", "no-such-conversation", "x", cwd=project.path).status == 2


def test_show_tells_steps_tools_subagents_and_usage(program: Program, project: RealRepository) -> None:
    with ModelServer(DELEGATION) as server:
        program.use_model(server.base_url)
        run = program("run", "coordinator", "coordinate this", "--json", cwd=project.path).json
        assert not server.unanswered
    shown = program("show", run["id"], "--json", cwd=project.path).json
    assert shown["run"] == run
    assert [(step["index"], "subagentId" in step) for step in shown["steps"]] == [(1, False), (1, True), (2, False)]
    [subagent] = shown["subagents"]
    assert (subagent["name"], subagent["status"]) == ("reviewer", "finished")
    assert [one["usage"]["input"] for one in shown["usage"]] == [20, 10]
    text = program("show", run["id"], cwd=project.path).out
    assert "coordinator step 1" in text
    assert "  reviewer step 1" in text
    assert program("show", run["id"][:-2], cwd=project.path).status == 0
    assert program("show", "nothing", cwd=project.path).status == 2
    [journal] = Path(program.environment["OUTPOST_STATE_DIR"]).rglob(f"journals/{run['id']}.jsonl")
    journal.write_bytes(b"")
    assert "no steps to show: its journal is empty" in program("show", run["id"], cwd=project.path).out
    journal.unlink()
    assert f"no steps to show: there is no journal {journal}" in program("show", run["id"], cwd=project.path).out


def test_show_writes_a_page_that_shows_hostile_text_and_does_nothing_with_it(
    program: Program, project: RealRepository, tmp_path: Path
) -> None:
    hostile = "<script>alert(1)</script><img src=x onerror=y>"
    with ModelServer([Answer(text=hostile)]) as server:
        program.use_model(server.base_url)
        run = program("run", "reviewer", hostile, "--json", cwd=project.path).json
    page = tmp_path / "run.html"
    assert program("show", run["id"], "--html", str(page), cwd=project.path).status == 0
    text = page.read_text("utf-8")
    assert "<script" not in text
    assert "<img" not in text
    assert "&lt;script&gt;" in text
    assert "http://" not in text
    assert "https://" not in text


def test_runs_can_be_chosen_by_status_and_number(program: Program, project: RealRepository) -> None:
    with ModelServer([Answer(status=401)]) as server:
        program.use_model(server.base_url)
        assert program("run", "reviewer", "x", cwd=project.path).status == 3
    program("review", "--offline", cwd=project.path)
    assert [run["status"] for run in program("runs", "--json", cwd=project.path).json] == ["succeeded", "failed"]
    assert len(program("runs", "--limit", "1", "--json", cwd=project.path).json) == 1
    [failed] = program("runs", "--status", "failed", "--json", cwd=project.path).json
    assert failed["error"]["code"]
    table = program("runs", cwd=project.path).out.splitlines()
    assert len(table) == 2
    assert failed["id"] in table[1]


def test_config_show_names_where_each_value_comes_from(program: Program, project: RealRepository) -> None:
    program.config.write_text("[runs]\nconcurrency = 3\n", "utf-8")
    project.write("outpost.toml", "[review]\nmax_findings = 7\n")
    shown = program("config", "show", "--set", "runs.retention_days=9", cwd=project.path / "shop")
    lines = {line.split(" = ")[0]: line for line in shown.out.splitlines()}
    assert lines["runs.concurrency"].endswith(f"# {program.config}:2")
    assert lines["review.max_findings"].endswith("outpost.toml:2")
    assert lines["runs.retention_days"].startswith("runs.retention_days = 9")
    assert lines["review.agent"].endswith("# built in")
    as_json = program("config", "show", "--json", cwd=project.path).json
    assert {
        "key": "runs.concurrency",
        "value": 3,
        "place": "user",
        "source": str(program.config),
        "line": 2,
    } in as_json["settings"]


def test_config_check_names_file_line_key_and_what_was_expected(
    program: Program, project: RealRepository, tmp_path: Path
) -> None:
    assert program("config", "check", cwd=project.path).status == 0
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[runs]\nconcurrency = 'two'\n", "utf-8")
    ended = program("config", "check", str(wrong), cwd=project.path)
    assert ended.status == 2
    assert f"{wrong}:2: runs.concurrency" in ended.err
    assert program("config", "check", str(tmp_path / "missing.toml")).status == 2


@pytest.mark.parametrize("name", ["config", "protocol", "findings"])
def test_schemas_are_json_schemas(program: Program, name: str) -> None:
    schema = program("schema", name).json
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_trust_is_given_to_a_folders_settings_as_they_are_and_can_be_taken_back(
    program: Program, project: RealRepository
) -> None:
    project.write("outpost.toml", "[runs]\nconcurrency = 1\n")

    def concurrency() -> object:
        shown = program("config", "show", "--json", cwd=project.path).json
        return next(value["value"] for value in shown["settings"] if value["key"] == "runs.concurrency")

    assert concurrency() == 2
    assert program("trust", str(project.path)).status == 0
    assert concurrency() == 1
    project.write("outpost.toml", "[runs]\nconcurrency = 8\n")
    assert concurrency() == 2
    assert program("trust", "--remove", str(project.path)).status == 0
    assert program("trust", "/no/such/folder").status == 2


def test_doctor_checks_without_asking_any_service_and_ends_with_1_when_something_fails(
    program: Program, project: RealRepository
) -> None:
    before = project.state()
    ended = program("doctor", "--json", cwd=project.path)
    checks = {check["name"]: check for check in ended.json["checks"]}
    assert checks["git"]["status"] == "ok"
    assert checks["worktree"]["status"] == "ok"
    assert checks["offline reviewer"]["status"] == "ok"
    assert ended.status == 0
    assert project.state() == before
    with ModelServer(["never"]) as server:
        program.use_model(server.base_url)
        text = program.config.read_text("utf-8").replace('api_key_env = ""', 'api_key_env = "NO_SUCH_KEY"')
        program.config.write_text(text, "utf-8")
        ended = program("doctor", cwd=project.path, SECRET_KEY="do-not-show-me")
        assert server.requests == []
    assert ended.status == 1
    assert "fail" in ended.out
    assert "NO_SUCH_KEY is not set" in ended.out
    assert "do-not-show-me" not in ended.out


def test_doctor_names_what_other_programs_left_and_leaves_it_alone(program: Program, tmp_path: Path) -> None:
    builder = Path(__file__).parents[1] / "cases" / "repos" / "r06-leftovers.sh"
    subprocess.run(["bash", str(builder), str(tmp_path / "case")], check=True, capture_output=True)
    repository = tmp_path / "case" / "repo"
    checks = {check["name"]: check for check in program("doctor", "--json", cwd=repository).json["checks"]}
    found = checks["others' leftovers"]
    assert found["status"] == "warn"
    assert f"{repository / '.git' / 'index.lock'} is older than a day" in found["detail"]
    for gone in ("wt-gone", "wt-torn"):
        assert f"the worktree {tmp_path / 'case' / gone} is missing" in found["detail"]
    for kept in ("packed-refs.lock", "wt-live", "wt-loose"):
        assert kept not in found["detail"]
    assert (repository / ".git" / "index.lock").exists()
    assert len(list((repository / ".git" / "worktrees").iterdir())) == 4


@pytest.mark.parametrize("variable", ["OUTPOST_STATE_DIR", "OUTPOST_CACHE_DIR"])
def test_DOC_03_a_folder_that_cannot_be_used_is_a_failed_check_with_a_remedy(
    program: Program, project: RealRepository, tmp_path: Path, variable: str
) -> None:
    (tmp_path / "file").write_text("no folder", "utf-8")
    ended = program("doctor", cwd=project.path, **{variable: str(tmp_path / "file" / "below")})
    assert (ended.status, ended.err) == (1, "")
    [failed] = [line for line in ended.out.splitlines() if line.startswith("fail")]
    assert f"cannot use {tmp_path / 'file' / 'below'}: Not a directory" in failed
    assert f"or choose another with {variable}" in failed


def test_doctor_outside_a_repository_says_so(program: Program, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    ended = program("doctor", cwd=folder)
    assert ended.status == 1
    assert "fail  repository: " in ended.out


def test_clean_removes_old_runs_and_says_before_what_would_go(program: Program, project: RealRepository) -> None:
    program("review", cwd=project.path)
    assert program("clean", cwd=project.path).out == "nothing to remove\n"
    [run] = program("runs", "--json", cwd=project.path).json
    [record] = Path(program.environment["OUTPOST_STATE_DIR"]).rglob(f"runs/{run['id']}.json")
    old = json.loads(record.read_text("utf-8"))
    old["run"] |= {"startedAt": "2020-01-01T00:00:00.000Z", "finishedAt": "2020-01-01T00:00:01.000Z"}
    record.write_text(json.dumps(old), "utf-8")
    would = program("clean", "--dry-run", cwd=project.path)
    assert f"would remove run {run['id']}" in would.out
    assert record.exists()
    assert f"removed run {run['id']}" in program("clean", cwd=project.path).out
    assert program("runs", "--json", cwd=project.path).json == []
    assert not list(Path(program.environment["OUTPOST_STATE_DIR"]).rglob(f"{run['id']}*"))


def test_clean_keeps_what_was_changed_and_never_applied(program: Program, project: RealRepository) -> None:
    edit = {"path": "README.md", "content": "changed by an agent\n"}
    with ModelServer([Answer(calls=[{"name": "write_file", "input": edit}]), "Done."]) as server:
        program.use_model(server.base_url)
        run = program("run", "fixer", "change it", "--json", cwd=project.path).json
        assert not server.unanswered
    assert run["disposition"] == "pending"
    assert run["changes"]["files"] == 1
    [record] = Path(program.environment["OUTPOST_STATE_DIR"]).rglob(f"runs/{run['id']}.json")
    old = json.loads(record.read_text("utf-8"))
    old["run"] |= {"startedAt": "2020-01-01T00:00:00.000Z", "finishedAt": "2020-01-01T00:00:01.000Z"}
    record.write_text(json.dumps(old), "utf-8")
    assert program("clean", cwd=project.path).out == "nothing to remove\n"
    assert len(project.git("worktree", "list").splitlines()) == 2
    assert (project.path / "README.md").read_text("utf-8") == "shop\n"


def test_the_bare_program_with_a_pipe_for_its_input_is_the_server(program: Program) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "outpost_lsp"],
        env=program.environment,
        input=b"",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1  # the input ended without `exit`
    assert done.stdout == b""


def test_colour_is_for_terminals_and_not_where_no_color_says_otherwise(
    program: Program, project: RealRepository
) -> None:
    assert "\x1b[" not in program("review", cwd=project.path).out
    ours, theirs = os.openpty()
    for variables, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        with subprocess.Popen(
            [sys.executable, "-m", "outpost_lsp", "review", "-q"],
            cwd=project.path,
            env=program.environment | {"TERM": "xterm"} | variables,
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.DEVNULL,
        ) as process:
            output = b""
            while b"1 finding" not in output.replace(b"\x1b[0m", b""):
                output += os.read(ours, 65_536)
            process.wait(timeout=60)
        assert (b"\x1b[" in output) is coloured
    os.close(ours)
    os.close(theirs)


_INTERRUPTED = """
import os, signal, sys

module = sys.argv.pop(1)

class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, AtImport())
from outpost_lsp.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "module", ["outpost_lsp.cli.main", "outpost_lsp.cli.arguments", "outpost_lsp.errors", "outpost_lsp.service.outpost"]
)
def test_ctrl_c_while_the_program_starts_is_one_line_and_status_130(module: str, project: RealRepository) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, module, "review"],
        cwd=project.path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "outpost-lsp: cancelled\n")


@pytest.mark.parametrize("arguments", [["review"], ["review", "--format", "json"]])
def test_without_standard_channels_a_review_works_and_its_status_tells_what_was_found(
    program: Program, project: RealRepository, arguments: list[str]
) -> None:
    def status(*more: str) -> int:
        closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-m", "outpost_lsp", *arguments, *more]
        return subprocess.run(
            closed, cwd=project.path, env=program.environment, timeout=PATIENCE_S, check=False
        ).returncode

    before = project.state()
    assert status() == 1
    assert status("--fail-on", "never") == 0
    assert status("--base", "nowhere") == 2
    assert project.state() == before
    assert [run["status"] for run in program("runs", "--json", cwd=project.path).json] == ["succeeded"] * 2


def test_a_parent_that_ignores_the_ends_of_its_children_fails_no_review(
    program: Program, project: RealRepository
) -> None:
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
        "os.execv(sys.executable, [sys.executable, '-m', 'outpost_lsp', 'review'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", ignoring],
        cwd=project.path,
        env=program.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "Review of the uncommitted changes: succeeded")


@pytest.mark.parametrize("arguments", [["review"], ["runs"], ["config", "show"], ["trust"]])
def test_in_a_folder_that_is_gone_a_command_says_so_and_ends_with_2(
    program: Program, tmp_path: Path, arguments: list[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", sys.executable, "-P", "-m", "outpost_lsp", *arguments],
        cwd=gone,
        env=program.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "outpost-lsp: the current folder is gone; change into one that exists, or name one with -C"
    ]
