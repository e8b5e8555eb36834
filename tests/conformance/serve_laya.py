"""Serves laya's own HTTP application with a stub where its weights would be.

Runs in the environment of the third-party servers. Everything on the wire is laya's; the stub makes up probabilities,
rounds them to four decimals as laya's models do, and obeys a "stub" object in the state: `p` (probabilities by question),
`sleep`, `fail`, `truncated`, `drop_usage`. `STUB_FAST` is the probability of `fast` where the state says nothing. Prints its base URL as JSON and serves until its input ends.
"""

import json
import math
import os
import socket
import sys
import threading
import time

import uvicorn
from laya.serve import create_app


def rounded(probabilities):
    return {name: round(value, 4) for name, value in probabilities.items()}


def sureness(values):
    if len(values) < 2:
        return 1.0
    spread = -sum(value * math.log(value) for value in values if value > 0)
    return round(min(1.0, max(0.0, 1 - spread / math.log(len(values)))), 4)


def answer(question, given):
    kind, criteria = question["type"], question.get("criteria")
    if kind == "noul":
        yes = given["true"] if given else 0.25
        return {"type": "noul", "noul": round(yes, 4), "confidence": round(max(yes, 1 - yes), 4)}
    names = list(criteria) if kind == "choice" else [str(level) for level in range(len(criteria))]
    shares = {name: given[name] if given else 1 / len(names) for name in names}
    shown = {"probabilities": rounded(shares), "confidence": sureness(list(shares.values()))}
    if kind == "choice":
        return {"type": "choice", "choice": max(shares, key=shares.get), **shown, "action": {"act_probability": 1.0}}
    score = sum(int(level) * share for level, share in shares.items())
    return {"type": "score", "score": round(score, 4), "legend": dict(zip(names, criteria, strict=True)), **shown}


class Stub:
    """What laya's application uses of its router."""

    def __init__(self):
        self.loaded = ["stub"]
        self.loaded_revisions = {"stub": "0"}

    def predict(self, state, questions, model=None, **_controls):
        told = state.get("stub", {}) if isinstance(state, dict) else {}
        if fast := float(os.environ.get("STUB_FAST", "0")):
            told = {"p": {"route": {"fast": fast, "deep": 1 - fast}}, **told}
        time.sleep(told.get("sleep", 0))
        if told.get("fail"):
            raise RuntimeError("the stub was told to fail")
        for name, question in questions.items():
            if question.get("type") not in ("choice", "score", "noul"):
                raise ValueError(f"question {name!r}: unknown type")
        cut = told.get("truncated", [])
        usage = {"input_tokens": 40, "output_tokens": 0, "truncated": bool(cut), "truncated_questions": cut}
        result = {
            "model": "laya-stub",
            "answers": {name: answer(question, told.get("p", {}).get(name)) for name, question in questions.items()},
            "usage": usage,
            "routing": {
                "model": model or "english",
                "repo": "stub",
                "reason": "stub",
                "detection": None,
                "workflow": None,
            },
        }
        if told.get("drop_usage"):
            del result["usage"]
        return result


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(router=Stub()), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            sys.exit("the server did not start")
        time.sleep(0.02)
    print(json.dumps(f"http://127.0.0.1:{listener.getsockname()[1]}/v1"), flush=True)
    sys.stdin.read()
    server.should_exit = True
    thread.join(10)


if __name__ == "__main__":
    main()
