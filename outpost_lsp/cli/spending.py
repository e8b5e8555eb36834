"""The command `usage`: tokens and money by day, agent and model, for people or as CSV. What is unknown is never 0."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from outpost_lsp.cli.session import opened, run_async
from outpost_lsp.cli.status import DONE
from outpost_lsp.cli.terminal import BOLD, DIM, Paint, wants_colour
from outpost_lsp.domain.markdown import one_line

if TYPE_CHECKING:
    from outpost_lsp.service.spending import Spending

UNKNOWN: Final = "unknown"
HEADER: Final = ("day", "agent", "model", "runs", "input", "cached", "output", "complete", "cost", "currency")


def usage(options: argparse.Namespace) -> int:
    """Print what the runs of this repository used; the exit status."""
    return run_async(lambda: _usage(options))


async def _usage(options: argparse.Namespace) -> int:
    # Adding up needs prices and journals, which few commands do.
    from outpost_lsp.config.prices import price_table
    from outpost_lsp.service.spending import spending

    async with opened(options) as (outpost, workspace):
        runs = outpost.runs()
        journals = {run.id: workspace.journal_path(run.id) for run in runs}
        lines = spending(runs, journals, price_table(workspace.settings))
    if options.days is not None:
        days = sorted({line.day for line in lines})[-options.days :]
        lines = [line for line in lines if line.day in days]
    if options.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows(map(csv_row, lines))
    else:
        sys.stdout.writelines(f"{line}\n" for line in table(lines, Paint(colour=wants_colour(sys.stdout))))
        if not lines:
            print("nothing was used yet", file=sys.stderr)
    return DONE


def csv_row(line: Spending) -> tuple[str, ...]:
    """The line for programs: an unknown count or cost is empty, and `complete` says whether all was reported."""
    counts = (line.usage.input, line.usage.cached, line.usage.output)
    tokens = map(str, counts) if line.has_tokens else ("", "", "")
    cost = ("", "") if line.cost is None else (f"{line.cost.amount:.6f}", line.cost.currency)
    if line.is_free:
        cost = ("0", "")
    complete = line.usage.is_complete and (line.cost is None or line.cost.complete)
    return (line.day, line.agent, line.model, str(len(line.runs)), *tokens, str(complete).lower(), *cost)


def table(lines: Sequence[Spending], paint: Paint) -> Iterator[str]:
    """The lines for people; what is only known in part is marked as a lower bound."""
    if not lines:
        return
    rows = [("day", "agent", "model", "runs", "input", "cached", "output", "cost"), *map(_row, lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(8)]
    for number, row in enumerate(rows):
        cells = [
            text.ljust(width) if column < 3 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        shown = "  ".join(cells).rstrip()
        yield paint(shown, DIM) if number == 0 else shown
    yield paint(f"together: {_together(lines)}", BOLD)


def _row(line: Spending) -> tuple[str, ...]:
    def tokens(count: int) -> str:
        if not line.has_tokens:
            return UNKNOWN
        return f"{'' if line.usage.is_complete else '>='}{count:,}"

    usage = line.usage
    return (
        line.day,
        one_line(line.agent, 40),
        _model_text(line),
        str(len(line.runs)),
        tokens(usage.input),
        tokens(usage.cached),
        tokens(usage.output),
        _cost_text([line]),
    )


def _model_text(line: Spending) -> str:
    """The model that was asked, and behind it those that answered under other names."""
    name = one_line(line.model, 60) or UNKNOWN
    answered = ", ".join(one_line(other, 40) for other in sorted(line.answered))
    return f"{name} (answered: {answered})" if answered else name


def _together(lines: Sequence[Spending]) -> str:
    mark = "" if all(line.usage.is_complete for line in lines) else "at least "
    used = sum(line.usage.input for line in lines), sum(line.usage.output for line in lines)
    return f"{mark}{used[0]:,} tokens in, {used[1]:,} out; cost {_cost_text(lines)}"


def _cost_text(lines: Iterable[Spending]) -> str:
    costs = [line.cost for line in lines if not line.is_free]
    if not costs:
        return "none"
    known = [cost for cost in costs if cost is not None]
    if not known:
        return UNKNOWN
    is_whole = len(known) == len(costs) and all(cost.complete for cost in known)
    return f"{'' if is_whole else '>='}{sum(cost.amount for cost in known):,.4f} {known[0].currency}"
