"""A row of the table of options, and how its values are parsed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from horovod.common import errors
from horovod.common.sentences import did_you_mean

_HIGHEST = {"int": 2**63 - 1, "float": 10**9}  # of C++'s int64; of seconds that become nanoseconds in C++
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_YAML = {True: "on", False: "off"}  # YAML reads these words as booleans
_NUMBERS = {"int": "a whole number", "float": "a number"}


@dataclass(frozen=True)
class Option:
    """One row. `default` is the text of `variable`; the flag's unit is `scale` times the variable's.

    A rank reads its options once, when it joins a job; `scope` says which ranks must have the same value. An
    option with flags has a `group`, one of GROUPS.
    """

    name: str
    help: str = ""
    flags: tuple[str, ...] = ()
    off_flags: tuple[str, ...] = ()
    variable: str = ""
    key: str = ""
    type: str = "string"  # "int" | "float" | "bool" | "string" | "list" (comma-separated)
    default: str = ""
    choices: tuple[str, ...] = ()
    scale: int = 1
    inverted: bool = False  # the flag means the opposite of the variable
    words: int = 1  # number of arguments of the flag
    minimum: int = 0
    maximum: int | None = None  # None: the maximum of the type
    form: tuple[str, str] | None = None  # of a text: regular expression, and its description
    part: str = ""
    scope: str = ""
    is_by_size: bool = False  # also two choices: the first up to so many bytes, as gather:65536,scatter
    tries: tuple[str, ...] = ()  # values that the autotuner tries, as the variable's text, in a running job
    tried: str = ""  # in which jobs: BETWEEN_HOSTS, SHARED_HOSTS, OVER_TCP, or ""
    is_new: bool = False  # Horovod has no such option, so docs/compatibility.md need not mention it
    group: str = field(default="", kw_only=True)
    unserved: str = field(default="", kw_only=True)

    def convert(self, value: Any) -> Any:
        """The value as this option's type. ValueError describes the expected value, but not the option."""
        if self.type == "bool":
            return self._bool(value)
        if isinstance(value, bool) and (word := _YAML[value]) in self.choices:
            return word
        if isinstance(value, bool) or value is None:
            raise errors.not_wanted(value=value, expected=self.wanted(), hint="")
        if self.type == "list":
            parts = value if isinstance(value, list) else str(value).split(",")
            return [str(part).strip() for part in parts if str(part).strip()]
        if self.type == "string":
            return self._text(value)
        try:
            number = int(str(value)) if self.type == "int" else float(str(value))
        except ValueError:
            raise errors.not_wanted(value=value, expected=self.wanted(), hint="") from None
        if not number >= self.minimum:  # NaN is refused too
            raise errors.too_small(value=value, expected=self.wanted())
        if number > self.highest():
            raise errors.too_large(value=value, expected=_NUMBERS[self.type], most=self.highest())
        return number

    def _bool(self, value: Any) -> bool:
        if (word := str(value).lower()) not in _TRUE + _FALSE:
            raise errors.not_wanted(value=value, expected=self.wanted(), hint="")
        return word in _TRUE

    def _text(self, value: Any) -> str:
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        if self.form is not None and not re.fullmatch(self.form[0], text):
            raise errors.not_wanted(value=text, expected=self.wanted(), hint="")
        if not self.choices:
            return text
        if self.is_by_size and (parts := re.fullmatch(r"(\w+):(\d{1,18}),(\w+)", text)):
            return f"{self._choice(parts[1])}:{int(parts[2])},{self._choice(parts[3])}"
        return self._choice(text)

    def _choice(self, text: str) -> str:
        for choice in self.choices:
            if text.lower() == choice.lower():
                return choice
        hint = did_you_mean(text, self.choices)
        raise errors.not_wanted(value=text, expected=self.wanted(), hint=hint)

    def wanted(self) -> str:
        if self.choices:
            by_size = ", or two by size, as gather:65536,scatter" if self.is_by_size else ""
            return "one of " + ", ".join(self.choices) + by_size
        if self.form is not None:
            return self.form[1]
        if self.type in _NUMBERS:
            return f"{_NUMBERS[self.type]} >= {self.minimum}"
        return "true or false" if self.type == "bool" else "a text"

    def highest(self) -> int:
        return _HIGHEST[self.type] if self.maximum is None else self.maximum

    @property
    def member(self) -> str:
        """Name of the member of the core's Settings."""
        return self.variable.removeprefix("HOROVOD_").lower()

    def read(self, environment: Mapping[str, str]) -> Any:
        """The variable's value, as this option's type, or the default. ValueError names both."""
        text = environment.get(self.variable, "").strip() or self.default
        try:
            return self.convert(text)
        except ValueError:
            wanted = "0 or 1" if self.type == "bool" else self.wanted()
            raise errors.not_valid(setting=self.variable, value=text, expected=wanted) from None

    def variable_text(self, value: Any) -> str:
        """The variable's text for a (converted) value of the flag."""
        if self.type == "bool":
            return str(int(value != self.inverted))
        number_or_text = value * self.scale if self.scale != 1 else value
        return ",".join(value) if self.type == "list" else str(number_or_text)
