"""horovodrun's command line, made from the table of options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from horovod.common.compressors import COMPRESSORS
from horovod.common.options import COMPLETION_FILE, GROUPS, OPTIONS, UNSERVED, Option
from horovod.runner import errors
from horovod.runner.mistakes import USAGE, explained_flag, with_hyphens

# Command -> description, for --help; a test runs each command.
EXAMPLES = {
    "horovodrun -np 2 python train.py": "two ranks on this host",
    "horovodrun -np 2 --compression bit8 python train.py": "their gradients travel in 8 bits",
    "horovodrun -np 2 --ddp --compression bit8 python train_ddp.py": "a script of torch.distributed",
}
FLAGS = tuple(flag for option in OPTIONS for flag in (*option.flags, *option.off_flags))


class _Refuse(argparse.Action):
    """Exits with the reason why this option of Horovod is not served."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        parser.error(f"{option_string} is not served: {self.metavar}")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exit with the message, rewritten for -host, which begins two flags, and for -np2."""
        if match := re.match(r"ambiguous option: (\S+)", message):
            message = explained_flag(match[1], FLAGS)
        elif match := re.match(r"argument -np\S*: 'p(\d+)'", message):
            message = f"-np{match[1]} is no option; did you mean -np {match[1]}?"
        super().error(message)


def parse(arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return (name -> converted value of the given options, the command). SystemExit(2) for wrong use."""
    parser = _parser()
    words = list(arguments)
    while True:
        namespace, unknown = parser.parse_known_args(words)
        given = vars(namespace)
        command: list[str] = given.pop("command", [])
        if unknown:
            parser.error(explained_flag(unknown[0], FLAGS))
        if not command or not (meant := with_hyphens(command[0], FLAGS)):
            return given, command[1:] if command[:1] == ["--"] else command
        words[len(words) - len(command)] = meant


def completion(shell: str) -> str:
    """Return a script that completes horovodrun's options in a shell. LaunchError without shtab.

    It contains all options, so completion starts no Python process.
    """
    try:
        import shtab
    except ImportError:
        raise errors.no_completion(shell=shell) from None
    parser = _parser()
    for action in parser._actions:
        if "--compression" in action.option_strings:
            action.choices = list(COMPRESSORS)
    script = shtab.complete(parser, shell=shell)
    return _with_own_instructions(script) if shell == "bash" else script


def _with_own_instructions(script: str) -> str:
    """Replace the first comment of bash's script: it names the file to write it to, as the pages do."""
    lines = script.splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    made_by, where = "# Made by `horovodrun --print-completion bash`.", f"# Write it to {COMPLETION_FILE}"
    body = "".join(lines[first:]).lstrip()
    return f"{made_by}\n{where}: bash-completion loads it from there.\n\n{body}"


def _parser() -> _Parser:
    parser = _Parser(
        prog="horovodrun",
        usage=USAGE,
        description=_description(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Variables, config file keys and defaults: docs/configuration.md.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    groups = {title: parser.add_argument_group(title) for title in GROUPS}
    for option in OPTIONS:
        if option.part == UNSERVED:
            _add_unserved(parser, option)
        elif option.flags:
            _add(groups[option.group], option)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _description() -> str:
    width = max(map(len, EXAMPLES))
    examples = "".join(f"\n  {typed:{width}}  {does}" for typed, does in EXAMPLES.items())
    return (
        f"Starts COMMAND on N ranks, and ends with 0 only if every rank ended with 0.\n\nexamples:{examples}"
    )


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
        nargs=option.words if option.words > 1 else None,
        action="extend" if option.type == "list" else "store",
        choices=option.choices or None,  # for completion; the converter's error is clearer than argparse's
        metavar=(",".join(option.choices) and "{" + ",".join(option.choices) + "}") or option.type.upper(),
        help=text,
    )


def _add_unserved(parser: argparse.ArgumentParser, option: Option) -> None:
    if option.flags:
        parser.add_argument(
            *option.flags, action=_Refuse, nargs="?", metavar=option.unserved, help=argparse.SUPPRESS
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
