"""Compressors with options: ``Compression.bit8`` has the defaults, ``Compression.bit8(seed=1)`` others.

And the names of all compressors: between ranks, and in text.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any

from horovod.torch.compression import errors
from horovod.torch.compression.contract import Compressor, CompressorType

MIN_ELEMENTS = 1024


class ConfiguredCompressor(Compressor):
    """A compressor that is used as a class, with default options, or as an instance with others.

    Every option is a keyword argument of the constructor, and an attribute.
    """

    min_elements: int | None = MIN_ELEMENTS

    def __init__(self, *, error_feedback: bool, min_elements: int | None) -> None:
        self.require("error_feedback", error_feedback, (False, True))
        if min_elements is not None:
            self.require_integer("min_elements", min_elements, 0)
        self.error_feedback = bool(error_feedback)
        self.min_elements = min_elements

    @classmethod
    def default(cls) -> Any:
        """Return the instance that stands for the class."""
        return instance_of(cls)

    @classmethod
    def require(cls, option: str, value: object, allowed: tuple[object, ...]) -> None:
        """Raise ValueError unless an option has one of the allowed values, in their type."""
        if not any(value == choice and isinstance(value, type(choice)) for choice in allowed):
            choices = " or ".join(repr(choice) for choice in allowed)
            raise errors.wrong_choice(compressor=cls.__name__, option=option, value=value, allowed=choices)

    @classmethod
    def require_integer(cls, option: str, value: object, least: int) -> None:
        """ValueError unless an option is an integer from ``least`` to 2^63 - 1."""
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
            raise errors.wrong_integer(compressor=cls.__name__, option=option, value=value, least=least)

    def options(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        parameters = inspect.signature(type(self)).parameters
        values = {name: getattr(self, name) for name in parameters}
        return {name: value for name, value in values.items() if value != parameters[name].default}

    def __repr__(self) -> str:
        cls = type(self)
        called = repr(cls) if "known_as" in vars(cls) else cls.__name__
        return f"{called}({', '.join(f'{name}={value!r}' for name, value in self.options().items())})"


@functools.cache  # one for each class, as the state belongs to the instance
def instance_of(cls: type) -> Any:
    return cls()


class method_on_class_too:
    """A method that also works on the class, with its default instance: ``Compression.bit8.compress(t)``."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        functools.update_wrapper(self, function)  # type: ignore[arg-type]

    def __get__(
        self, instance: ConfiguredCompressor | None, owner: type[ConfiguredCompressor]
    ) -> Callable[..., Any]:
        return MethodType(self._function, owner.default() if instance is None else instance)


class property_on_class_too(method_on_class_too):
    """A read-only property that also works on the class, with the value of its default instance."""

    def __get__(self, instance: ConfiguredCompressor | None, owner: type[ConfiguredCompressor]) -> Any:
        return super().__get__(instance, owner)()


def compressor_name(compressor: Any) -> str:
    """Return the name by which ranks compare compressors: the class, with options if it has any."""
    if isinstance(compressor, ConfiguredCompressor):
        return repr(compressor)
    cls = compressor if isinstance(compressor, type) else type(compressor)
    return f"{cls.__module__}.{cls.__qualname__}"


def short_name(compressor: Any) -> str:
    """Return a name for readers. Compression.from_text parses it if the compressor is the package's."""
    cls = compressor if isinstance(compressor, type) else type(compressor)
    name = cls.short_name if isinstance(cls, CompressorType) else cls.__name__
    options = compressor.options() if isinstance(compressor, ConfiguredCompressor) else {}
    written = ",".join(f"{option}={_written(value)}" for option, value in options.items())
    return f"{name}:{written}" if written else name


def _written(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value).lower() if value is None else str(value)
