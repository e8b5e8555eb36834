"""What the command line accepts: every command with its arguments, and nothing else.

Parsing imports neither the server nor the engine, so that `--help` and wrong usage answer at once. Each command's
`command` default names the coroutine or function that `main` looks up.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final, NoReturn

SEVERITY_FLOORS: Final = ("error", "warning", "information", "hint", "never")
FORMATS: Final = ("text", "json", "sarif", "github")
RUN_STATUSES: Final = (
    "queued",
    "preparing",
    "running",
    "waiting",
    "succeeded",
    "failed",
    "cancelled",
    "interrupted",
)

_DESCRIPTION: Final = """Coding agents that work in a private git worktree of your repository.

They review, delegate and fix; nothing reaches your files before you apply it."""

_EPILOGUE: Final = """Exit status: 0 done; 1 findings at or above --fail-on; 2 wrong usage or configuration;
3 the run failed; 130 cancelled."""


class WrongUsageError(Exception):
    """The command line cannot be taken as it is; the message is one sentence for a person."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise WrongUsageError(f"{self.prog}: {message} (try: {self.prog} --help)")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed command line; `WrongUsageError` for one that cannot be taken."""
    if list(arguments[:1]) == ["serve"]:
        # An editor waits for this one, so nothing else is prepared.
        options = _serve_parser().parse_args(arguments[1:])
        options.command = "serve"
        return options
    return parser().parse_args(arguments)


def parser() -> argparse.ArgumentParser:
    """The parser of every command."""
    top = _Parser(
        prog="outpost-lsp",
        description=_DESCRIPTION,
        epilog=_EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    _add_serve_options(_command(commands, "serve", "run the language server"))
    _add_review(commands)
    _add_collect(commands)
    _add_audit(commands)
    _add_agent_commands(commands)
    _add_run_commands(commands)
    _add_settings_commands(commands)
    _add_cluster_commands(commands)
    _add_demo(commands)
    return top


def _command(commands: Any, name: str, summary: str, *, options: Sequence[str] = ()) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=summary[0].upper() + summary[1:] + ".", allow_abbrev=False
    )
    if "folder" in options:
        command.add_argument(
            "-C", dest="folder", metavar="DIR", type=_given, default=".", help="work as if started in DIR"
        )
    if "settings" in options:
        command.add_argument(
            "--set",
            dest="settings",
            metavar="KEY=VALUE",
            action="append",
            default=[],
            help="override one setting, e.g. runs.concurrency=1; may be repeated",
        )
    if "offline" in options:
        command.add_argument(
            "--offline", action="store_true", help="let the built-in, rule-based reviewer answer; no service is asked"
        )
    if "quiet" in options:
        command.add_argument("--quiet", "-q", action="store_true", help="no progress on standard error")
    return command


def _serve_parser() -> argparse.ArgumentParser:
    serve = _Parser(prog="outpost-lsp serve", description="Run the language server.", allow_abbrev=False)
    _add_serve_options(serve)
    return serve


def _add_serve_options(serve: argparse.ArgumentParser) -> None:
    door = serve.add_mutually_exclusive_group()
    door.add_argument("--stdio", action="store_true", help="speak on standard input and output (the default)")
    door.add_argument("--tcp", metavar="[HOST:]PORT", help="listen for one TCP connection")
    door.add_argument("--ws", metavar="[HOST:]PORT", help="listen for one WebSocket connection")
    lock = serve.add_mutually_exclusive_group()
    lock.add_argument("--token", metavar="TOKEN", help="what a TCP or WebSocket client has to show; random by default")
    lock.add_argument("--no-token", action="store_true", help="open a loopback port to everyone on this machine")
    serve.add_argument("--allow-remote", action="store_true", help="permit a HOST that is not this machine")
    serve.add_argument("--clientProcessId", dest="client_process_id", metavar="PID", type=_pid, help="end when it ends")
    serve.add_argument("--log-file", metavar="FILE", help="write the log there as well")
    serve.add_argument(
        "--log-level", metavar="LEVEL", default="info", type=_log_level, help="debug, info, warning or error"
    )


def _add_review(commands: Any) -> None:
    review = _command(
        commands, "review", "review changes, files or everything", options=("folder", "settings", "offline", "quiet")
    )
    review.add_argument("paths", metavar="PATH", nargs="*", type=_given, help="only these files and folders")
    scope = review.add_mutually_exclusive_group()
    scope.add_argument("--base", metavar="REV", type=_given, help="the branch's changes since its merge base with REV")
    scope.add_argument("--staged", action="store_true", help="what is staged, as it stands in the index")
    scope.add_argument("--unstaged", action="store_true", help="what is not staged")
    scope.add_argument("--commit", metavar="REV", type=_given, help="what one commit changed")
    scope.add_argument("--all", action="store_true", help="every file, changed or not")
    scope.add_argument(
        "--patch",
        metavar="FILE",
        type=_given,
        help="what a patch from elsewhere changes; - reads it from standard input",
    )
    review.add_argument("--agent", metavar="NAME", type=_given, help="the agent that reviews (default: [review] agent)")
    review.add_argument("--brief", metavar="TEXT", help="an instruction on top of the agent's own")
    review.add_argument(
        "--baseline", metavar="SARIF", help="leave out what is in this earlier SARIF report, by fingerprint"
    )
    review.add_argument("--yes", "-y", action="store_true", help="do not ask before a review that costs money")
    _add_executor(review)
    review.add_argument(
        "--detach", action="store_true", help="print the run's id once a worker has begun, and let it go on without you"
    )
    _add_report_options(review)


def _add_collect(commands: Any) -> None:
    collect = _command(
        commands, "collect", "fetch what became of a detached review", options=("folder", "settings", "quiet")
    )
    collect.add_argument("run", metavar="RUN", help="its id, or how it begins; it is waited for")
    collect.add_argument("--cancel", action="store_true", help="stop it first")
    collect.add_argument("--baseline", metavar="SARIF", help="leave out what is in this earlier SARIF report")
    # Wherever runs go now: this one went to a face.
    collect.set_defaults(executor="ray")
    _add_report_options(collect)


def _add_audit(commands: Any) -> None:
    audit = _command(
        commands,
        "audit",
        "review many repositories as a whole, one SARIF each",
        options=("settings", "offline", "quiet"),
    )
    audit.add_argument("list", metavar="LIST", help="a file with a folder a line")
    audit.add_argument("--yes", "-y", action="store_true", help="agree to what the reviews cost")
    audit.add_argument(
        "--output", metavar="DIR", type=_given, default="audit", help="where the reports go (default: audit)"
    )
    audit.add_argument(
        "--fail-on",
        choices=SEVERITY_FLOORS,
        default="error",
        help="end with status 1 on findings this bad or worse (default: error)",
    )
    _add_executor(audit)


def _add_executor(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--executor", choices=("local", "ray"), help="where the run is carried out (default: [runs] executor)"
    )


def _add_report_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--format", choices=FORMATS, default="text", help="how findings are printed (default: text)")
    command.add_argument(
        "--output", metavar="FILE", type=_given, help="write the findings there instead of standard output"
    )
    command.add_argument(
        "--fail-on",
        choices=SEVERITY_FLOORS,
        default="error",
        help="end with status 1 on findings this bad or worse (default: error)",
    )


def _add_agent_commands(commands: Any) -> None:
    every = ("folder", "settings", "offline", "quiet")
    run = _command(commands, "run", "give a configured agent a brief", options=every)
    run.add_argument("agent", metavar="AGENT", help="the agent's name in the configuration")
    run.add_argument("brief", metavar="BRIEF", help="what it has to do; - reads it from standard input")
    _add_executor(run)
    run.add_argument("--apply", action="store_true", help="apply the changes it made when it succeeded")
    run.add_argument("--json", action="store_true", help="print the run as JSON")
    go_on = _command(commands, "continue", "go on with a conversation", options=every)
    go_on.add_argument("conversation", metavar="CONVERSATION", help="its id, or the RUN that held it")
    go_on.add_argument("brief", metavar="BRIEF", help="what comes next; - reads it from standard input")
    go_on.add_argument("--fork", action="store_true", help="leave the conversation as it is and go on in a copy")
    go_on.add_argument("--agent", metavar="NAME", type=_given, help="default: the agent that held it")
    go_on.add_argument("--json", action="store_true", help="print the run as JSON")


def _add_run_commands(commands: Any) -> None:
    here = ("folder", "settings")
    runs = _command(commands, "runs", "list the runs of this repository", options=here)
    runs.add_argument(
        "--limit", metavar="N", type=_count, default=20, help="at most so many, newest first (default: 20)"
    )
    runs.add_argument("--status", choices=RUN_STATUSES, help="only these")
    runs.add_argument("--json", action="store_true", help="print a list of runs as JSON")
    usage = _command(commands, "usage", "tokens and cost by day, agent and model", options=here)
    usage.add_argument("--csv", action="store_true", help="print comma-separated values; what is unknown is empty")
    usage.add_argument("--days", metavar="N", type=_count, help="only the last N days on which something was used")
    report = _command(
        commands, "report", "pack what a bug report about a run needs, without keys and texts", options=here
    )
    report.add_argument("run", metavar="RUN")
    report.add_argument(
        "--output", metavar="FILE", type=_given, help="where the bundle goes (default: your state folder)"
    )
    show = _command(commands, "show", "what happened in a run, step by step", options=here)
    show.add_argument("run", metavar="RUN")
    form = show.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the timeline as JSON")
    form.add_argument("--html", metavar="FILE", help="write it as one page")

    diff = _command(commands, "diff", "print what a run changed as a patch", options=here)
    diff.add_argument("run", metavar="RUN")
    apply = _command(commands, "apply", "bring a run's changes into your files", options=here)
    apply.add_argument("run", metavar="RUN")
    apply.add_argument("paths", metavar="PATH", nargs="*", help="only these files, relative to where you are")
    apply.add_argument("--quiet", "-q", action="store_true", help="say only what was not applied")
    discard = _command(commands, "discard", "drop a run's changes", options=here)
    discard.add_argument("run", metavar="RUN")
    reopen = _command(commands, "reopen", "make dropped or applied changes pending again", options=here)
    reopen.add_argument("run", metavar="RUN")
    replay = _command(
        commands, "replay", "go through a run again from its journal; no service is asked", options=(*here, "quiet")
    )
    replay.add_argument("run", metavar="RUN")
    replay.add_argument("--json", action="store_true", help="print the run as JSON")


def _add_settings_commands(commands: Any) -> None:
    init = _command(commands, "init", "find keys and local models, write your configuration file, run one review")
    init.add_argument("-C", dest="folder", metavar="DIR", default=".", help="review the repository around DIR")
    init.add_argument("--yes", "-y", action="store_true", help="ask nothing: write, and review with what was found")
    init.add_argument("--dry-run", action="store_true", help="only print what would be written; nothing is reviewed")
    init.add_argument("--no-review", action="store_true", help="write only")
    config = _command(commands, "config", "print or check the configuration")
    actions = config.add_subparsers(dest="action", metavar="show|check", required=True, parser_class=_Parser)
    show = _command(actions, "show", "print every setting and where it comes from", options=("folder", "settings"))
    show.add_argument("--json", action="store_true", help="print it as JSON")
    check = _command(actions, "check", "say what is wrong with the configuration", options=("folder", "settings"))
    check.add_argument("file", metavar="FILE", nargs="?", help="check this file instead of those in force")
    schema = _command(commands, "schema", "print a JSON Schema")
    schema.add_argument("name", choices=("config", "protocol", "findings"))
    trust = _command(commands, "trust", "let a folder's own settings define programs and services", options=("folder",))
    trust.add_argument("trusted", metavar="DIR", nargs="?", default=".", help="default: the folder you are in")
    trust.add_argument("--remove", action="store_true", help="take the trust back")
    doctor = _command(commands, "doctor", "check what runs depend on", options=("folder", "settings"))
    doctor.add_argument("--json", action="store_true", help="print the checks as JSON")
    clean = _command(commands, "clean", "remove what ended runs left and nobody needs", options=("folder", "settings"))
    clean.add_argument("--dry-run", action="store_true", help="only say what would be removed")


def _add_cluster_commands(commands: Any) -> None:
    worker = _command(commands, "worker", "join this machine to a Ray cluster, to carry out the runs of others")
    worker.add_argument("--ray", metavar="ADDRESS", required=True, help="the head of the cluster, HOST:PORT")
    worker.add_argument("--slots", metavar="N", type=_count, default=2, help="runs at once (default: 2)")
    worker.add_argument("--shell", action="store_true", help="take runs that need confined commands, too")
    worker.add_argument("--directory", metavar="DIR", help="where repositories' bases are kept (default: the cache)")
    worker.add_argument(
        "--bases", metavar="GIB", type=_count, default=20, help="how much of them is kept, in GiB (default: 20)"
    )
    worker.add_argument("--node-ip-address", metavar="IP", help="how other nodes reach this one")
    face = _command(commands, "face", "answer for a Ray cluster, so that editors and terminals can send runs there")
    face.add_argument("--ray", metavar="ADDRESS", required=True, help="the head of the cluster, HOST:PORT")
    face.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:8443", help="default: 127.0.0.1:8443")
    face.add_argument("--certificate", metavar="FILE", help="a PEM file; needed for other machines")
    face.add_argument("--key", metavar="FILE", help="its key")
    face.add_argument("--token-file", metavar="FILE", help="accepted tokens, one a line")
    face.add_argument(
        "--token-env", metavar="NAME", default="OUTPOST_RAY_TOKEN", help="else this variable (OUTPOST_RAY_TOKEN)"
    )
    face.add_argument(
        "--directory", metavar="DIR", help="where what detached runs left is kept for a week (default: the cache)"
    )
    face.add_argument("--replicas", metavar="N", type=_count, default=1, help="faces at once (default: 1)")


def _add_demo(commands: Any) -> None:
    demo = _command(commands, "demo", "watch a review of a sample repository; no service is asked", options=("quiet",))
    _add_report_options(demo)


def _pid(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no process id")
    return int(text)


def _given(text: str) -> str:
    # What a script's unset variable leaves would mean everything, or a default that nobody asked for.
    if not text:
        raise argparse.ArgumentTypeError("it is empty; give it a value, or leave it out")
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def _log_level(text: str) -> str:
    if text.lower() not in ("debug", "info", "warning", "error"):
        raise argparse.ArgumentTypeError(f"{text!r} is none of debug, info, warning, error")
    return text.lower()
