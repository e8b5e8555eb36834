"""A loopback model service that speaks three wire forms and says what a test tells it to.

In a test, synchronous or not (the service runs in a thread of its own):

    with ModelServer([Answer(calls=[{"name": "read_file", "input": {"path": "a.py"}}]), "All done."]) as server:
        provider = OpenAIModelProvider(server.base_url, False, api="chat")   # or "responses"; or Anthropic's
        ...
        assert server.requests[0].json["model"] == "small"

As a process, for end-to-end tests:

    python -m tests.support.model_server --port 0 --script FILE     prints "listening on http://127.0.0.1:PORT/v1"

`FILE` is a JSON list of answers, each a text or an object with the fields of `Answer` (tests/support/model_answers.py:
text, calls, usage, status, headers, json, delays, cuts, resets, hanging, `raw_file` ...).

Each request to `/v1/chat/completions`, `/v1/responses` or `/v1/messages` takes the first answer that is not used up and
whose `when` fits, e.g. `{"when": {"model": "small", "results": 0}, "times": 0, ...}`: so several agents at once, and
agents that ask again, can share one service. In a test an answer may also be a function from the request to an answer.
A request that nothing fits gets status 418 and stands in `server.unanswered`; a conversation in which a call has no
result, or a result no call, gets status 422 and stands in `server.problems`. Other paths answer when an answer's `when`
names them by `path` (so a decision service can be scripted with `json`).

With `certificate=(chain, key)` it speaks https on `localhost`.

`server.requests` records every request: method, path, headers (names in lower case), body, json, connection.
`server.open_connections` counts; `server.left_early` counts the answers whose client went away before their end.
`server.wait_for(lambda: ...)` waits for a condition on these, `await server.until(lambda: ...)` does so in a coroutine.
`server.release(name)` lets go of the answers that `hold` that name.
Over HTTP the same is at `GET /control/state`, `GET /control/requests`; `POST /control/script` adds answers (a JSON
list) and `POST /control/release` lets go of a name (a JSON text).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.support.model_answers import Answer
from tests.support.model_history import problem_with_history, results_in
from tests.support.model_saying import Received, Saying, write_json

Scripted = Answer | str | Callable[[Received], Answer | str]
_PATIENCE_S = 60.0
_LARGEST_REQUEST = 256 * 1024 * 1024


class ModelServer:
    """The service. Enter it (`with` or `async with`) to start it, leave it to stop it."""

    def __init__(
        self,
        answers: Iterable[Scripted] = (),
        *,
        port: int = 0,
        check_history: bool = True,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        self.requests: list[Received] = []
        self.unanswered: list[Received] = []
        self.problems: list[str] = []
        self.open_connections = 0
        self.connections = 0
        self.left_early = 0
        self._answers: list[Scripted] = list(answers)
        self._used: dict[int, int] = {}
        self._released: dict[str, asyncio.Event] = {}
        self._port = port
        self._check_history = check_history
        self._certificate = certificate
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="model-server", daemon=True)
        self._started = threading.Event()
        self._failure: BaseException | None = None

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._port}" if self._certificate is None else f"https://localhost:{self._port}"

    @property
    def base_url(self) -> str:
        return f"{self.origin}/v1"

    def add(self, *answers: Scripted) -> None:
        """More answers, after those that are there."""
        with self._changed:
            self._answers.extend(answers)

    def release(self, name: str) -> None:
        """Let go of the answers that hold `name`, those that are yet to come, too."""
        self._loop.call_soon_threadsafe(self._gate(name).set)

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = _PATIENCE_S) -> None:
        """Wait until something that this server counts is so."""
        with self._changed:
            if not self._changed.wait_for(condition, timeout_s):
                raise TimeoutError("the model server never came to what was waited for")

    async def until(self, condition: Callable[[], bool], timeout_s: float = _PATIENCE_S) -> None:
        """The same in a coroutine."""
        await asyncio.to_thread(self.wait_for, condition, timeout_s)

    def start(self) -> ModelServer:
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def stop(self) -> None:
        if self._thread.is_alive() and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def __enter__(self) -> ModelServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> ModelServer:
        return self.start()

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - whoever starts the server gets it
            self._failure = error
        finally:
            self._loop.close()
            self._started.set()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        handlers: set[asyncio.Task[None]] = set()
        writers: list[asyncio.StreamWriter] = []

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            task = asyncio.ensure_future(self._connection(reader, writer))
            handlers.add(task)
            task.add_done_callback(handlers.discard)

        encryption = None
        if self._certificate is not None:
            encryption = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            encryption.load_cert_chain(*self._certificate)
        server = await asyncio.start_server(accept, "127.0.0.1", self._port, limit=_LARGEST_REQUEST, ssl=encryption)
        self._port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopping.wait()
        # Nobody comes in any more, and who came at the last moment is let in before the server is closed: the event loop
        # forgets their sockets otherwise, and one that nobody closes fails some other test.
        for listening in server.sockets:
            self._loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)
        server.close()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
        await asyncio.sleep(0)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._changed:
            self.connections += 1
            self.open_connections += 1
            number = self.connections
            self._changed.notify_all()
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._exchange(reader, writer, number):
                    pass
        finally:
            with contextlib.suppress(ConnectionError):
                writer.close()
            with self._changed:
                self.open_connections -= 1
                self._changed.notify_all()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = first.split(" ", 2)
        request = Received(method, path, headers, body, connection)
        if path.startswith("/control/"):
            await write_json(writer, *self._control(request))
            return True
        answer, number = self._choose(request)
        # The client says nothing while it is answered, so whatever can be read means that it went away.
        leaving = asyncio.ensure_future(reader.read(1))
        saying = asyncio.ensure_future(self._say(Saying(writer, request, answer, number), answer.hold))
        try:
            await asyncio.wait({leaving, saying}, return_when=asyncio.FIRST_COMPLETED)
            # A client that went away shows itself by its silence's end, or by the first word it does not take.
            if not saying.done() or isinstance(saying.exception(), ConnectionError):
                with self._changed:
                    self.left_early += 1
                    self._changed.notify_all()
                return False
            return saying.result()
        finally:
            for task in (leaving, saying):
                task.cancel()
            await asyncio.gather(leaving, saying, return_exceptions=True)

    async def _say(self, saying: Saying, hold: str) -> bool:
        if hold:
            await self._gate(hold).wait()
        return await saying.say()

    def _gate(self, name: str) -> asyncio.Event:
        with self._changed:
            return self._released.setdefault(name, asyncio.Event())

    def _choose(self, request: Received) -> tuple[Answer, int]:
        with self._changed:
            self.requests.append(request)
            number = len(self.requests)
            answer = self._next(request)
            self._changed.notify_all()
        return answer, number

    def _next(self, request: Received) -> Answer:
        if self._check_history and request.form and (problem := problem_with_history(request.form, request.json)):
            self.problems.append(problem)
            return Answer(status=422, json={"error": {"message": problem}})
        for place, scripted in enumerate(self._answers):
            answer = scripted if isinstance(scripted, Answer) else None
            uses = self._used.get(place, 0)
            if uses and (answer is None or 0 < answer.times <= uses):
                continue
            if answer is None and request.form is None:
                continue
            if answer is not None and not _fits(answer.when, request):
                continue
            self._used[place] = uses + 1
            made = scripted(request) if callable(scripted) else scripted
            return Answer(text=made) if isinstance(made, str) else made
        self.unanswered.append(request)
        return Answer(status=418, json={"error": {"message": "the script has no answer for this request"}})

    def _control(self, request: Received) -> tuple[int, Any]:
        if request.method == "POST" and request.path == "/control/script":
            self.add(*(Answer.from_json(entry) for entry in request.json))
            return 200, {}
        if request.method == "POST" and request.path == "/control/release":
            self.release(request.json)
            return 200, {}
        if request.path == "/control/requests":
            return 200, [
                {"method": seen.method, "path": seen.path, "headers": seen.headers, "json": seen.json}
                for seen in self.requests
            ]
        if request.path == "/control/state":
            state = {
                "requests": len(self.requests),
                "openConnections": self.open_connections - 1,
                "leftEarly": self.left_early,
                "unanswered": len(self.unanswered),
                "problems": self.problems,
            }
            return 200, state
        return 404, {}


def _fits(when: Any, request: Received) -> bool:
    if "path" in when:
        if request.path != when["path"]:
            return False
    elif request.form is None:
        return False
    if "contains" in when and when["contains"].encode() not in request.body:
        return False
    if "model" in when and request.json.get("model") != when["model"]:
        return False
    return "results" not in when or (
        request.form is not None and results_in(request.form, request.json) == when["results"]
    )


def main() -> None:
    """Serve until the process is ended."""
    arguments = argparse.ArgumentParser(description="a scripted model service on loopback")
    arguments.add_argument("--port", type=int, default=0)
    arguments.add_argument("--script", type=Path)
    arguments.add_argument("--no-history-check", action="store_true")
    given = arguments.parse_args()
    script = json.loads(given.script.read_text("utf-8")) if given.script else []
    folder = given.script.parent if given.script else None
    answers = [Answer.from_json(entry, folder) for entry in script]
    with ModelServer(answers, port=given.port, check_history=not given.no_history_check) as server:
        print(f"listening on {server.base_url}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
