"""Options as the words of the command, and progress."""

from __future__ import annotations

import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Callable, Union

    Text = Union[str, int, float]
    Texts = Union[Text, Iterable[Text]]
    #: Called with the share that is done, 0 to 1. None: a bar where somebody sees it. False:
    #: nothing is shown.
    Progress = Union[Callable[[float], None], bool, None]

#: Options whose names in Python differ.
_NAMES = {"limits": "set", "kernels": "kernel", "p99_9": "p99.9", "from_": "from"}
#: Options that take one list with commas.
_LISTS = {"kernels", "period", "burst"}


def words(command: str, paths: Iterable[str], options: dict) -> list[str]:
    """The words of a command line; options that are None or False are left out."""
    line = ["cpumax", command, *("./" + p if p.startswith("-") else p for p in paths)]
    for name, value in options.items():
        option = "--" + _NAMES.get(name, name).replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            line.append(option)
            continue
        values = texts(value)
        if name in _LISTS:
            values = [",".join(values)] if values else []
        line.extend(f"{option}={one}" for one in values)
    return line


def texts(value: Texts) -> list[str]:
    """One value, or several."""
    if isinstance(value, (str, int, float)):
        return [str(value)]
    return [str(one) for one in value]


#: Shorter waits get no bar.
_SHOWN_AFTER_S = 2.0
_WIDTH = 40


class _Bar:
    """A bar on standard error, drawn over itself."""

    def __init__(self) -> None:
        self.since = time.monotonic()
        self.shown = False

    def __call__(self, share: float) -> None:
        if time.monotonic() - self.since < _SHOWN_AFTER_S:
            return
        self.shown = True
        bar = "█" * int(share * _WIDTH)
        print(f"\r{bar:░<{_WIDTH}} {share:4.0%}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.shown:
            print("\r" + " " * (_WIDTH + 6) + "\r", end="", file=sys.stderr, flush=True)


def _is_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == "ZMQInteractiveShell"


class shown:
    """Shows progress while its block runs."""

    def __init__(self, progress: Progress):
        self.bar: _Bar | None = None
        self.progress = progress if callable(progress) else None
        if progress is None and (sys.stderr.isatty() or _is_notebook()):
            self.progress = self.bar = _Bar()

    def __enter__(self) -> Callable[[float], None] | None:
        return self.progress

    def __exit__(self, *error: object) -> None:
        if self.bar:
            self.bar.close()
