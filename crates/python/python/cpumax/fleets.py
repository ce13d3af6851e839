"""A fleet's answer: for each service of a sweep the limit advised, and what it saves and costs."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable
from typing import Any

from . import _cpumax
from ._studies import Tabular
from ._words import words
from .sweeps import Sweep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._words import Text

#: The period that Kubernetes, systemd and docker use unless told otherwise.
_USUAL_PERIOD_USEC = 100_000
#: The goal where none is given, as of :func:`cpumax.advise`.
_USUAL_GOAL = {"slower_than": "10%"}
#: Another kind of limit is named where it needs this part of the CPUs or less.
_WORTH = 0.9
#: Columns of the table, with what each is.
COLUMNS = {
    "service": "name",
    "limit": "the smallest tried limit of the usual kind that keeps the goal",
    "millicpus": "the same in thousandths of a CPU",
    "sure": "yes; or why not",
    "margin_percent": "how far the worst number is from its bound",
    "current": "the limit today",
    "used_cpus": "CPUs used without a limit",
    "wasted_cpus": "CPUs of today's limit that are not used",
    "saved_cpus": "CPUs of today's limit above the advised one",
    "p99_ms": "p99 under the advised limit",
    "p99_cost_ms": "p99 above that of today's limit, or of no limit where there is none today",
    "ought": "no limit, burst, shorter period; or nothing",
    "instead": "the burst or shorter period that needs fewer CPUs",
    "cells": "cells that the answer is of",
}

Row = dict[str, Any]


class Fleet(Tabular):
    """The table, a row for each service in order of CPUs saved; ``rows`` are dicts."""

    def __init__(self, rows: list[Row], goal: str):
        self.rows, self.goal = rows, goal

    @property
    def saved_cpus(self) -> float:
        """CPUs that all services together save."""
        return sum(row["saved_cpus"] or 0.0 for row in self.rows)

    def table(self) -> Any:
        """The rows as a ``pyarrow.Table``."""
        import pyarrow

        numbers = {
            "margin_percent",
            "used_cpus",
            "wasted_cpus",
            "saved_cpus",
            "p99_ms",
            "p99_cost_ms",
        }
        types = {name: pyarrow.float64() for name in numbers}
        types.update(millicpus=pyarrow.uint64(), cells=pyarrow.uint64())
        fields = [pyarrow.field(name, types.get(name, pyarrow.string())) for name in COLUMNS]
        return pyarrow.Table.from_pylist(self.rows, pyarrow.schema(fields))

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Writes the table as a Parquet file."""
        import pyarrow.parquet

        pyarrow.parquet.write_table(self.table(), os.fspath(path))

    def to_html(self) -> str:
        """The table as one page."""
        head = "".join(
            f'<th scope="col" title="{html.escape(told)}">{name.replace("_", " ")}</th>'
            for name, told in COLUMNS.items()
        )
        lines = "\n".join(f"<tr>{_cells(row)}</tr>" for row in self.rows)
        title = f"Limits for {len(self.rows)} services"
        answer = f"Together they save {self.saved_cpus:.2f} CPUs. Asked of each: {self.goal}."
        return (
            f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f"<title>{title}</title>\n<style>\n{_cpumax.PAGE_STYLE}</style>\n</head>\n"
            "<body>\n<main>"
            f'\n<h1>{title}</h1>\n<p class="answer">{html.escape(answer)}</p>\n'
            '<div class="scroll" role="region" tabindex="0"><table>\n'
            f"<thead><tr>{head}</tr></thead>"
            f"\n<tbody>\n{lines}\n</tbody>\n</table></div>\n</main>\n</body>\n</html>\n"
        )

    def patches(self, folder: str | os.PathLike[str], system: str = "kubernetes") -> list[str]:
        """Writes a file in the form of a system for each advised limit; returns the paths."""
        os.makedirs(folder, exist_ok=True)
        paths = []
        for row in self.rows:
            form = row["limit"] and _cpumax.limit_in_form(
                system, row["limit"], f"{row['service']}: {self.goal}.", f"/{row['service']}"
            )
            if form:
                safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in row["service"])
                path = os.path.join(os.fspath(folder), f"{safe}.{_ENDINGS.get(system, 'txt')}")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(form)
                paths.append(path)
        return paths


_ENDINGS = {"kubernetes": "yaml", "systemd": "conf", "docker": "sh", "cgroup": "sh"}


def fleet(
    sweep: Sweep | Any,
    *,
    p50: str | None = None,
    p95: str | None = None,
    p99: str | None = None,
    p99_9: str | None = None,
    slower_than: Text | None = None,
    throttled: Text | None = None,
    throughput: Text | None = None,
) -> Fleet:
    """The answer for all services of a sweep.

    sweep: a :class:`Sweep`, or its rows as a ``pyarrow.Table``.
    The goals are those of :func:`cpumax.advise`, with the same default. The worse end of every
    range counts, on each kernel, for each recording and seed; a prediction that is not reliable
    keeps nothing.

    Raises OptionError for a goal that is not understood.
    """
    asked = dict(
        p50=p50,
        p95=p95,
        p99=p99,
        p99_9=p99_9,
        slower_than=slower_than,
        throttled=throttled,
        throughput=throughput,
    )
    given = {name: goal for name, goal in asked.items() if goal is not None} or _USUAL_GOAL
    goals = _cpumax._Goals(words("advise", ["sweep"], given))
    rows = (sweep.table() if isinstance(sweep, Sweep) else sweep).to_pylist()
    services: dict[str, list[Row]] = {}
    for row in rows:
        services.setdefault(row["service"], []).append(row)
    found = [
        _answer(name, _Cells(cells, goals), cells[0]["current"])
        for name, cells in sorted(services.items())
    ]
    found.sort(key=lambda row: -(row["saved_cpus"] or 0.0))
    told = [f"{name.replace('_', ' ')} {goal}" for name, goal in given.items()]
    return Fleet(found, ", ".join(told))


class _Cells:
    """The cells of one service by limit, held against the goals."""

    def __init__(self, rows: list[Row], goals: _cpumax._Goals):
        self.goals = goals
        self.none = {_place(row): row for row in rows if row["limit"] == "none"}
        self.errors = [row for row in rows if row["error"]]
        self.limits: dict[str, list[Row]] = {}
        for row in rows:
            if row["limit"] not in (None, "none"):
                self.limits.setdefault(row["asked"], []).append(row)

    def kept(self) -> list[tuple[str, list[Row], float]]:
        """The limits that keep the goals in every cell, with the largest excess, by CPUs."""
        failed = {row["asked"] for row in self.errors}
        kept = []
        for limit, rows in self.limits.items():
            excesses = [self.goals.excess(row, self.none.get(_place(row), {})) for row in rows]
            if limit not in failed and all(one is not None and one <= 1 for one in excesses):
                kept.append((limit, rows, max(excesses)))
        return sorted(kept, key=lambda one: (one[1][0]["millicpus"] or 0, one[0]))


def _place(row: Row) -> tuple[Any, ...]:
    return row["recording"], row["kernel"], row["seed"]


def _is_usual(row: Row) -> bool:
    return row["period_usec"] == _USUAL_PERIOD_USEC and not row["burst_usec"]


def _answer(name: str, cells: _Cells, current: str | None) -> Row:
    row: Row = dict.fromkeys(COLUMNS)
    none = list(cells.none.values())
    used = _mean(one["cpus"] for one in none)
    row.update(service=name, current=current, used_cpus=used, sure=_why_unsure(cells))
    row["cells"] = len(none) + sum(len(rows) for rows in cells.limits.values())
    today = cells.limits.get(current or "", [])
    today_cpus = _mean((one["millicpus"] or 0) / 1e3 for one in today)
    if today_cpus is not None and used is not None:
        row["wasted_cpus"] = max(0.0, today_cpus - used)
    kept = cells.kept()
    usual = [one for one in kept if _is_usual(one[1][0])]
    if not usual:
        if kept:
            row.update(ought=_kind(kept[0][1][0]), instead=kept[0][0])
        elif row["sure"] == "yes":
            row["ought"] = "no limit"
        return row
    limit, rows, excess = usual[0]
    row.update(limit=limit, millicpus=rows[0]["millicpus"], margin_percent=100 * (1 - excess))
    if today_cpus is not None:
        row["saved_cpus"] = today_cpus - rows[0]["millicpus"] / 1e3
    row["p99_ms"] = _p99_ms(rows)
    before = _p99_ms(today or none)
    if row["p99_ms"] is not None and before is not None:
        row["p99_cost_ms"] = row["p99_ms"] - before
    smaller = kept[0][1][0]
    if smaller["millicpus"] <= _WORTH * rows[0]["millicpus"]:
        row.update(ought=_kind(smaller), instead=kept[0][0])
    return row


def _kind(row: Row) -> str:
    return "burst" if row["burst_usec"] else "shorter period"


def _why_unsure(cells: _Cells) -> str:
    """`yes`, or the first reason why the answer may be wrong."""
    for row in cells.errors:
        return f"{row['asked']}: {row['error']}"
    for row in cells.none.values():
        if not row["predictable"]:
            return str(row["why_not"])
    if not cells.none:
        return "nothing was run"
    return "yes"


def _mean(numbers: Iterable[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) / len(known) if known else None


def _p99_ms(rows: list[Row]) -> float | None:
    """The longest p99 of these cells."""
    known = [row["p99_ns"] for row in rows if row["p99_ns"] is not None]
    return max(known) / 1e6 if known else None


def _cells(row: Row) -> str:
    def text(value: Any) -> str:
        if value is None:
            return "-"
        return f"{value:.2f}" if isinstance(value, float) else html.escape(str(value))

    return "".join(f"<td>{text(row[name])}</td>" for name in COLUMNS)
