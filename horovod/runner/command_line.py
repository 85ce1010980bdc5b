"""horovodrun's command line, made from the table of options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from horovod.runner.options import CORE, OPTIONS, PYTHON, UNSERVED, Option

USAGE = "horovodrun -np N [options] COMMAND [ARGUMENT ...]"


class _Refuse(argparse.Action):
    """Ends with the reason why this option of Horovod is not served."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        parser.error(f"{option_string} is not served: {self.metavar}")


def parse(arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """(what was given: option name -> converted value, the command). Wrong use ends with SystemExit(2)."""
    given = vars(_parser().parse_args(arguments))
    command: list[str] = given.pop("command", [])
    return given, command[1:] if command[:1] == ["--"] else command


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="horovodrun",
        usage=USAGE,
        description="Starts COMMAND on N ranks, and ends with 0 only if every rank ended with 0.",
        epilog="Variables, config file keys and defaults: docs/configuration.md.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    ranks = parser.add_argument_group("options of the ranks (also as variables, or in the config file)")
    for option in OPTIONS:
        if option.part == UNSERVED:
            _add_unserved(parser, option)
        elif option.flags:
            _add(ranks if option.part in (CORE, PYTHON) else parser, option)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _add(group: argparse._ActionsContainer, option: Option) -> None:
    text = option.help.replace("%", "%%")
    if option.type == "bool":
        group.add_argument(*option.flags, dest=option.name, action="store_true", help=text)
        if option.off_flags:
            group.add_argument(
                *option.off_flags, dest=option.name, action="store_false", help=argparse.SUPPRESS
            )
        return
    group.add_argument(
        *option.flags,
        dest=option.name,
        type=_converter(option),
        action="extend" if option.type == "list" else "store",
        metavar=(",".join(option.choices) and "{" + ",".join(option.choices) + "}") or option.type.upper(),
        help=text,
    )


def _add_unserved(parser: argparse.ArgumentParser, option: Option) -> None:
    if option.flags:
        takes = 0 if option.type == "bool" else "?"
        parser.add_argument(
            *option.flags, action=_Refuse, nargs=takes, metavar=option.unserved, help=argparse.SUPPRESS
        )
    if option.off_flags:
        parser.add_argument(*option.off_flags, action="store_false", dest=option.name, help=argparse.SUPPRESS)


def _converter(option: Option) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return option.convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert
