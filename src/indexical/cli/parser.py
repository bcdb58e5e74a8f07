"""The parser of every command. A command is fetched when it is called: `ix check` does not wait for the others."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from .. import __version__
from .on_others import ON_OTHERS
from .on_programs import ON_PROGRAMS
from .words import meant


class Parser(argparse.ArgumentParser):
    """A parser that says which word was probably meant."""

    def error(self, message: str) -> NoReturn:
        chosen = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        unknown = re.search(r"unrecognized arguments: (--?[\w-]+)", message)
        if chosen is not None:
            message += meant(chosen[1], re.findall(r"[\w.<=-]+", chosen[2]))
        elif unknown is not None:
            message += meant(unknown[1], self.options())
        super().error(message)

    def options(self) -> list[str]:
        """The options of the command and of all commands in it."""
        groups = [action.choices for action in self._actions if isinstance(action.choices, dict)]
        inner = [name for group in groups for parser in group.values() for name in parser.options()]
        return [*self._option_string_actions, *inner]


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
        for argument in command.arguments:
            shown: dict[str, Any] = {} if argument.metavar is None else {"metavar": argument.metavar}
            added.add_argument(*argument.names, **shown, **argument.settings)
    return parser
