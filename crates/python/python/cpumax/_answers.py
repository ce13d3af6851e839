"""Documents of the library with their fields as attributes."""

from __future__ import annotations

TYPE_CHECKING = False  # typing takes as long to import as all of this
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Answer:
    """An object of a JSON document (docs/reference/json.md); each field is an attribute.

    A field of nanoseconds is found without its ``_ns``. A number with a range has ``value``,
    ``low`` and ``high``; ``doubts`` says why it cannot be relied on, and is empty if it can.
    """

    __slots__ = ("_fields", "doubts")
    doubts: list[str]

    def __init__(self, fields: dict, doubts: tuple[str, ...] = ()):
        self._fields = fields
        self.doubts = list(doubts)

    def __getattr__(self, name: str) -> Any:
        for key in (name, name + "_ns"):
            if not name.startswith("_") and key in self._fields:
                return self._wrapped(self._fields[key])
        raise AttributeError(f"no field '{name}': there are {', '.join(self._fields)}")

    def __getitem__(self, key: str) -> Any:
        return self._wrapped(self._fields[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *self._fields])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Answer) and self._fields == other._fields

    def __repr__(self) -> str:
        if {"value", "low", "high"} <= self._fields.keys():
            doubtful = "?" if self.doubts else ""
            return "{value}{0} ({low}..{high})".format(doubtful, **self._fields)
        return f"{type(self).__name__}({self._fields!r})"

    def to_dict(self) -> dict:
        """The object as it is in the document."""
        return self._fields

    def _wrapped(self, value: Any) -> Any:
        if isinstance(value, dict):
            return Answer(value, tuple(self.doubts))
        if isinstance(value, list):
            return [self._wrapped(one) for one in value]
        return value


class Cell(Answer):
    """The prediction for one limit on one kernel. Fields of ``prediction`` are its own too."""

    __slots__ = ("limit",)
    limit: str

    def __init__(self, limit: str, fields: dict, doubts: tuple[str, ...]):
        super().__init__(fields, doubts)
        self.limit = limit

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._wrapped(self._fields["prediction"]), name)
