"""A server of the Model Context Protocol that misbehaves, in the way its first argument names."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

MODE = sys.argv[1]


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "if": {"weird": True}}}


def listing(cursor: str | None) -> dict[str, Any]:
    if MODE == "pages":
        page = int(cursor or "0")
        return {"tools": [tool(f"t{page}")]} | ({"nextCursor": str(page + 1)} if page < 3 else {})
    if MODE == "collide":
        return {"tools": [tool("a b"), tool("a.b")]}
    if MODE == "endless":
        return {"tools": [tool(f"t{n}") for n in range(1_000)], "nextCursor": str(int(cursor or "0") + 1)}
    if MODE == "names":
        return {"tools": [tool("na\u00efve / \u5de5\u5177"), tool(""), tool("\u202e" * 90), tool("mcp__odd__t")]}
    if MODE == "malformed":
        return {"tools": [{"name": 7}, "t", None]}
    if MODE == "no-list":
        return {"tools": {"t": {}}}
    if MODE == "nameless":
        return {"tools": [tool("t"), {"inputSchema": {"type": "object"}}]}
    if MODE == "twice":
        return {"tools": [tool("t"), tool("t")]}
    return {"tools": [tool("t")]}


def call(params: dict[str, Any]) -> dict[str, Any]:
    if MODE == "structured":
        return {"content": [], "structuredContent": {"answer": 42}}
    if MODE == "large":
        return {"content": [{"type": "text", "text": "x" * 2_000_000}]}
    return {"content": [{"type": "hologram", "depth": 3}, {"type": "text", "text": json.dumps(params)}]}


def ask_back() -> list[Any]:
    """Ask the client for everything that a server may ask, and tell what it says."""
    answers = []
    for number, method in enumerate(("ping", "roots/list", "sampling/createMessage", "nonsense/method")):
        params = {"messages": [], "maxTokens": 1} if method.startswith("sampling") else {}
        say(id=f"ask-{number}", method=method, params=params)
        answer = json.loads(sys.stdin.readline())
        answers.append([method, answer.get("result"), answer.get("error", {}).get("code")])
    return answers


def main() -> None:
    if MODE == "crash":
        sys.exit("cannot begin")
    if MODE == "silent":
        time.sleep(1_000)
    if MODE == "junk":
        sys.stdout.write("Welcome!\n\n{not json\n[1, 2]\n")
    calls = 0
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        if method == "initialize":
            if MODE == "refuses":
                say(id=number, error={"code": -32000, "message": "not today"})
                continue
            version = "1999-01-01" if MODE == "old" else message["params"]["protocolVersion"]
            info = {"name": "odd", "version": "1"}
            say(id=number, result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
        elif method == "tools/list":
            say(id=number, result=listing((message.get("params") or {}).get("cursor")))
        elif method == "tools/call" and MODE == "error":
            say(id=number, error={"code": -32000, "message": "no such thing"})
        elif method == "tools/call" and MODE == "asks":
            say(id=number, result={"content": [{"type": "text", "text": json.dumps(ask_back())}]})
        elif method == "tools/call" and MODE == "overlong":
            sys.stdout.write("x" * (17 * 1024 * 1024) + "\n")
            sys.stdout.flush()
        elif method == "tools/call" and MODE == "changes":
            calls += 1
            if calls > 1:
                say(id=number, error={"code": -32602, "message": "Unknown tool: t"})
            else:
                say(method="notifications/tools/list_changed")
                say(id=number, result=call(message["params"]))
        elif method == "tools/call" and MODE == "nonsense":
            say(id="of nobody", result={"content": []})
            say(id=number, result={"content": "no blocks", "isError": "maybe"})
        elif method == "tools/call":
            say(id=number, result=call(message["params"]))


main()
