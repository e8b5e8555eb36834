"""Permission questions on a terminal: one at a time, answered by the next line that is typed (PERM-10, SEC-20).

A question that is answered with anything but a yes, or not for long, is a denial; one whose run ended is withdrawn.
After the end of the input (Ctrl-D) nobody can answer, so later questions are denied at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from outpost_lsp.harness.gate import Answer
from outpost_lsp.service.asking import PATIENCE_S, question_text
from outpost_lsp.service.signals import Question, Signal

CHOICES: Final = "allow it? [y] once, [r] for this run, [N] no: "
_ANSWERS: Final[dict[str, Answer]] = {
    "y": "allow",
    "yes": "allow",
    "r": "allow-run",
    "run": "allow-run",
    "": "deny",
    "n": "deny",
    "no": "deny",
}


class TerminalQuestions:
    """A listener that asks. `show` puts a question, or nothing more, in front of the person."""

    def __init__(self, show: Callable[[str | None], None], patience_s: float = PATIENCE_S) -> None:
        self._show = show
        self._patience_s = patience_s
        self._line: deque[Question] = deque()
        self._asked: Question | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __call__(self, signal: Signal) -> None:
        if isinstance(signal, Question) and not self._closed:
            signal.take()
            self._line.append(signal)
            if self._asked is None:
                self._ask()

    def typed(self, line: str) -> bool:
        """Take a typed line as an answer; `False` when nothing was asked, and it means something else."""
        if self._asked is None:
            return False
        answer = _ANSWERS.get(line.strip().lower())
        if answer is None:
            self._show(f"{question_text(self._asked)}\n{CHOICES}")
        else:
            self._asked.answer(answer)
        return True

    def close(self) -> None:
        """Nobody can answer any more: deny what is left, and take nothing more."""
        self._closed = True
        for question in (*self._line, *([self._asked] if self._asked else [])):
            question.answer("deny")
        self._line.clear()

    def _ask(self) -> None:
        while self._line:
            question = self._line.popleft()
            if question.withdrawn:
                continue
            self._asked = question
            self._timer = asyncio.get_running_loop().call_later(self._patience_s, question.answer, "deny")
            question.on_settled(self._settled)
            self._show(f"{question_text(question)}\n{CHOICES}")
            return

    def _settled(self) -> None:
        self._asked = None
        if self._timer is not None:
            self._timer.cancel()
        self._show(None)
        self._ask()
