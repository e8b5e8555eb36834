"""An external coding agent that speaks the Agent Client Protocol, made with the official package.

What it does with a prompt is said by the prompt: `do: NAME ...`. Its first argument is a folder in which it keeps its
sessions and writes down what it was asked; further arguments change what it is able to.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any

import acp
from acp import schema

NOTES = Path(sys.argv[1])
ABLE = set(sys.argv[2:])
MODELS = schema.SessionConfigOptionSelect(
    id="model",
    name="Model",
    category="model",
    type="select",
    current_value="small",
    options=[schema.SessionConfigSelectOption(value=name, name=name) for name in ("small", "large")],
)


class TrialAgent(acp.Agent):
    def __init__(self) -> None:
        self._client: Any = None
        self._cancelled = asyncio.Event()
        self._capabilities: Any = None
        self._cwd = Path()

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    def _note(self, **said: Any) -> None:
        with (NOTES / "asked.jsonl").open("a") as file:
            file.write(json.dumps(said) + "\n")

    async def initialize(
        self, protocol_version: int, client_capabilities: Any = None, client_info: Any = None, **_more: Any
    ) -> schema.InitializeResponse:
        self._capabilities = client_capabilities
        name = None if client_info is None else client_info.name
        self._note(method="initialize", pid=os.getpid(), client=name, terminal=client_capabilities.terminal)
        if "slow-start" in ABLE:
            await asyncio.sleep(1_000)
        fork = schema.SessionForkCapabilities() if "fork" in ABLE else None
        return schema.InitializeResponse(
            protocol_version=7 if "old" in ABLE else protocol_version,
            agent_capabilities=schema.AgentCapabilities(
                load_session="load" in ABLE, session_capabilities=schema.SessionCapabilities(fork=fork)
            ),
        )

    async def new_session(self, cwd: str, **_more: Any) -> schema.NewSessionResponse:
        if "sign-in" in ABLE:
            raise acp.RequestError.auth_required()
        self._cwd = Path(cwd)
        session = uuid.uuid4().hex
        (NOTES / session).write_text("")
        self._note(method="new", session=session, cwd=cwd)
        return schema.NewSessionResponse(session_id=session, config_options=[MODELS] if "models" in ABLE else None)

    async def load_session(self, cwd: str, session_id: str, **_more: Any) -> schema.LoadSessionResponse:
        self._cwd = Path(cwd)
        self._note(method="load", session=session_id)
        if not (NOTES / session_id).exists():
            raise acp.RequestError.resource_not_found(session_id)
        # The protocol has an agent say everything again when it takes a session up.
        for line in (NOTES / session_id).read_text().splitlines():
            await self._client.session_update(session_id, acp.update_user_message_text(line))
            await self._client.session_update(session_id, acp.update_agent_message_text(f"old answer to {line}"))
        return schema.LoadSessionResponse()

    async def fork_session(self, session_id: str, cwd: str, **_more: Any) -> schema.ForkSessionResponse:
        self._note(method="fork", session=session_id)
        session = uuid.uuid4().hex
        (NOTES / session).write_text((NOTES / session_id).read_text())
        return schema.ForkSessionResponse(session_id=session)

    async def set_config_option(self, config_id: str, session_id: str, value: Any, **_more: Any) -> Any:
        self._note(method="set", option=config_id, value=value)
        return schema.SetSessionConfigOptionResponse(config_options=[MODELS])

    async def cancel(self, session_id: str, **_more: Any) -> None:
        self._note(method="cancel")
        self._cancelled.set()

    async def prompt(self, session_id: str, prompt: list[Any], **_more: Any) -> schema.PromptResponse:
        text = "".join(block.text for block in prompt if block.type == "text")
        self._note(method="prompt", text=text)
        self._cancelled.clear()
        with (NOTES / session_id).open("a") as file:
            file.write(text + "\n")
        await self._say(session_id, "")
        request = text.partition("do: ")[2].splitlines()[0].split() if "do: " in text else ["answer", text]
        doing = getattr(self, f"do_{request[0].replace('-', '_')}")
        reason = await doing(session_id, *request[1:]) or "end_turn"
        usage = schema.Usage(
            total_tokens=20,
            input_tokens=10,
            output_tokens=3,
            thought_tokens=2,
            cached_read_tokens=4,
            cached_write_tokens=1,
        )
        return schema.PromptResponse(stop_reason=reason, usage=usage if "usage" in ABLE else None)

    async def _say(self, session: str, text: str) -> None:
        await self._client.session_update(session, acp.update_agent_message_text(text))

    async def do_answer(self, session: str, *words: str) -> None:
        for word in ("You ", "said ", *words):
            await self._say(session, word)

    async def do_work(self, session: str) -> None:
        """Thoughts, a call, its result with a change, a plan, and the answer."""
        await self._client.session_update(session, acp.update_agent_thought_text("hm"))
        await self._say(session, "I look.")
        path = str(self._cwd / "src" / "app.py")
        start = acp.start_tool_call("c1", "Reading app.py", kind="read", locations=[schema.ToolCallLocation(path=path)], raw_input={"path": path})  # fmt: skip
        await self._client.session_update(session, start)
        done = acp.update_tool_call("c1", status="completed", content=[acp.tool_content(acp.text_block("print"))])
        await self._client.session_update(session, done)
        await self._client.session_update(session, acp.start_tool_call("c2", "Editing app.py", kind="edit"))
        change = acp.update_tool_call("c2", status="completed", content=[acp.tool_diff_content(path, "new", "old")])
        await self._client.session_update(session, change)
        await self._client.session_update(session, acp.start_tool_call("c3", "Trying", kind="execute"))
        await self._client.session_update(session, acp.update_tool_call("c3", status="failed", raw_output="no"))
        plan = acp.update_plan([acp.plan_entry("one")])
        await self._client.session_update(session, plan)
        for piece in ("All ", "done."):
            await self._say(session, piece)

    async def do_permission(self, session: str, kind: str, *command: str) -> None:
        """Ask whether it may, and tell what came of it."""
        paths = [schema.ToolCallLocation(path=str(self._cwd / word)) for word in command] if kind == "edit" else None
        call = schema.ToolCallUpdate(
            tool_call_id="p1", title="May I?", kind=kind, locations=paths, raw_input={"command": " ".join(command)}
        )
        options = [
            schema.PermissionOption(option_id="always", name="Always", kind="allow_always"),
            schema.PermissionOption(option_id="once", name="Once", kind="allow_once"),
            schema.PermissionOption(option_id="no", name="No", kind="reject_once"),
        ]
        answer = await self._client.request_permission(session_id=session, tool_call=call, options=options)
        await self._say(session, getattr(answer.outcome, "option_id", answer.outcome.outcome))

    async def do_write(self, session: str, path: str, content: str = "written") -> None:
        await self._told(session, self._client.write_text_file(session_id=session, path=self._place(path), content=content))  # fmt: skip

    async def do_read(self, session: str, path: str, line: str = "", limit: str = "") -> None:
        asked = {"line": int(line) if line else None, "limit": int(limit) if limit else None}
        await self._told(session, self._client.read_text_file(session_id=session, path=self._place(path), **asked))

    def _place(self, path: str) -> str:
        return path if path.startswith("/") else f"{self._cwd}/{path}"

    async def _told(self, session: str, request: Any) -> Any:
        try:
            answer = await request
        except acp.RequestError as error:
            await self._say(session, f"error {error.code}: {error}")
            return None
        await self._say(session, getattr(answer, "content", None) or "ok")
        return answer

    async def do_terminal(self, session: str, *command: str) -> None:
        try:
            made = await self._client.create_terminal(session_id=session, command=" ".join(command))
        except acp.RequestError as error:
            await self._say(session, f"error {error.code}: {error}")
            return
        ended = await self._client.wait_for_terminal_exit(session_id=session, terminal_id=made.terminal_id)
        output = await self._client.terminal_output(session_id=session, terminal_id=made.terminal_id)
        await self._client.release_terminal(session_id=session, terminal_id=made.terminal_id)
        await self._say(session, f"{ended.exit_code}: {output.output}")

    async def do_terminal_kill(self, session: str) -> None:
        made = await self._client.create_terminal(session_id=session, command="sleep", args=["1000"])
        await self._client.kill_terminal(session_id=session, terminal_id=made.terminal_id)
        output = await self._client.terminal_output(session_id=session, terminal_id=made.terminal_id)
        await self._say(session, f"killed {output.exit_status.exit_code}")

    async def do_terminal_leave(self, session: str) -> None:
        """Start a command that goes on, and end the turn."""
        await self._client.create_terminal(session_id=session, command=f"echo $$ > {NOTES}/left; exec sleep 1000")
        while not (NOTES / "left").exists() or not (NOTES / "left").read_text().strip():
            await asyncio.sleep(0.02)
        await self._say(session, "left")

    async def do_wait(self, session: str) -> str:
        """Go on until somebody says stop."""
        await self._say(session, "waiting")
        await self._cancelled.wait()
        return "cancelled"

    async def do_ignore(self, session: str) -> None:
        """Heed nobody."""
        await self._say(session, "ignoring")
        await asyncio.sleep(1_000)

    async def do_call_and_wait(self, session: str) -> str:
        await self._client.session_update(session, acp.start_tool_call("c1", "Long", kind="execute"))
        await self._cancelled.wait()
        return "cancelled"

    async def do_crash(self, session: str) -> None:
        sys.stderr.write("out of luck\n")
        sys.stderr.flush()
        os._exit(9)

    async def do_oversized(self, session: str) -> None:
        await self._say(session, "x" * (9 * 1024 * 1024))
        await asyncio.sleep(1_000)

    async def do_fail(self, session: str, *words: str) -> None:
        raise acp.RequestError(-32603, "Internal error", {"details": " ".join(words)})

    async def do_stop_reason(self, session: str, reason: str) -> str:
        return reason

    async def do_marker(self, session: str) -> str:
        await self._say(session, "It is <outpost>do")
        await self._say(session, "ne</outpost>")
        await self._cancelled.wait()
        return "cancelled"

    async def do_repeat(self, session: str) -> str:
        for number in range(10):
            start = acp.start_tool_call(f"c{number}", "Again", kind="read", raw_input={"path": "x"})
            await self._client.session_update(session, start)
        await self._cancelled.wait()
        return "cancelled"

    async def do_shout(self, session: str) -> None:
        sys.stderr.write("a warning\n")
        sys.stderr.flush()
        await self._say(session, "shouted")

    async def do_environment(self, session: str) -> None:
        await self._say(session, json.dumps(dict(os.environ)))


if __name__ == "__main__":
    if "crash" in ABLE:
        sys.exit("cannot begin")
    asyncio.run(acp.run_agent(TrialAgent(), use_unstable_protocol=True))
