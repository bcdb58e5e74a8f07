"""The parser of every command. A command is fetched when it is called: `ix check` does not wait for the others."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import Any, NoReturn

from .. import __version__
from .on_others import ON_OTHERS
from .on_programs import ON_PROGRAMS
from .options import COLOR
from .words import meant


class Parser(argparse.ArgumentParser):
    """A parser that says which word was probably meant."""

    words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Refuse here, where its own options are known, what argparse hands to the parser of all commands."""
        self.words = sys.argv[1:] if args is None else args
        found, extra = super().parse_known_args(args, namespace)
        if extra:
            self.error(f"unrecognized arguments: {' '.join(extra)}")
        return found, extra

    def error(self, message: str) -> NoReturn:
        chosen = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        unknown = next(filter(self.is_unknown, self.own_words()), None)
        if unknown is not None:
            message = self.refusal(unknown.partition("=")[0])
        elif chosen is not None:
            message += meant(chosen[1], re.findall(r"[\w.<=-]+", chosen[2]))
        super().error(message)

    def own_words(self) -> list[str]:
        """The words that may be options of this command: not those behind `--`, nor those of a command in it."""
        words = list(self.words)
        words = words[: words.index("--")] if "--" in words else words
        return words if self.commands is None else list(takewhile(lambda word: word.startswith("-"), words))

    @property
    def commands(self) -> dict[str, Parser] | None:
        return next((each.choices for each in self._actions if isinstance(each.choices, dict)), None)

    def is_unknown(self, word: str) -> bool:
        """Whether a word looks like an option, and is none of this command's: neither whole, nor shortened."""
        if not re.match(r"--?[^\W\d]", word) or " " in word:
            return False
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        return not any(option.startswith(name) for option in self._option_string_actions)

    def refusal(self, name: str) -> str:
        """What is said about an option that is none: the one that was probably meant, or where to look."""
        said = f"there is no option {name}"
        for action in self._actions:
            if action.option_strings and action.choices and name.lstrip("-") in action.choices:
                return f"{said}; did you mean `{action.option_strings[-1]} {name.lstrip('-')}`?"
        own = {option.lstrip("-"): option for option in self._option_string_actions}
        close = get_close_matches(name.lstrip("-"), own, 1)
        if close:
            return f"{said}; did you mean `{own[close[0]]}`?"
        if self.commands is not None:
            return f"{said} before the command: options stand behind it, as in ix check --strict FILE"
        return f"{said}; `{self.prog} --help` lists those of this command"

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help without argparse's silence about an output that takes nothing."""
        if message:
            (sys.stderr if file is None else file).write(message)


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ix",
        description="A language for attention, in named coordinates: check programs, run them, see how they are "
        "computed, write them as plain source, have their exact values, trace a number, verify published figures.",
        epilog="ix COMMAND --help says more about a command. Exits 0 where all is well, 1 where a program, a figure or "
        "a law is at fault, 2 where the command line is, and 130 where it was interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"indexical {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in (*ON_PROGRAMS, *ON_OTHERS):
        added = commands.add_parser(
            command.name, help=command.help, description=command.description, epilog=command.epilog
        )
        # What every command is asked for, also where it has no such option.
        added.set_defaults(command=command.function, notes=False, format="text")
        for argument in (*command.arguments, COLOR):
            shown: dict[str, Any] = {} if argument.metavar is None else {"metavar": argument.metavar}
            added.add_argument(*argument.names, **shown, **argument.settings)
    return parser
