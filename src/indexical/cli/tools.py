"""The options of the commands that look at files as they are: check, fmt, explain, completion."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from .words import meant

SHELLS = ("bash", "zsh", "fish")


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


def add_check(commands: Any) -> None:
    """The command that checks programs."""
    checking = commands.add_parser(
        "check",
        help="every mistake at once, a caret under each",
        description="Report every mistake in programs, without running them. Silent where all is well. Programs stand "
        "in .ix files, in Python files (`@ix.program`, `ix.compile`) and in the ix blocks of Markdown pages.",
        epilog="Exits 1 where there is an error (with --strict, also where there is a warning; with --diff, also where "
        "there is something to mend). `ix explain CODE` says more about a finding.",
    )
    checking.add_argument(
        "files", nargs="+", metavar="FILE", help="programs, or folders of them; - reads standard input"
    )
    checking.add_argument("--strict", action="store_true", help="warnings fail too")
    checking.add_argument("--notes", action="store_true", help="print notes as well")
    checking.add_argument("--fix", action="store_true", help="mend what can be mended without a choice, in the files")
    checking.add_argument("--diff", action="store_true", help="print what --fix would change, and change nothing")
    checking.add_argument("--watch", action="store_true", help="check again whenever a file changes, until Ctrl-C")
    add_format(checking, "text", "json", "sarif", "github")
    checking.set_defaults(command="checking:check_command")


def add_tools(commands: Any) -> None:
    laying = commands.add_parser(
        "fmt", help="one canonical layout", description="Rewrite programs in the canonical layout; comments are kept."
    )
    laying.add_argument("files", nargs="+", metavar="FILE", help="programs; - reads standard input and prints")
    laying.add_argument("--check", action="store_true", help="change nothing; exit 1 if some file would change")
    add_format(laying)
    laying.set_defaults(command="formatting:format_command", notes=False)

    explaining = commands.add_parser(
        "explain",
        help="the page of a code: a program that fails, why, and the mend",
        description="Print the page of a code like IX403, or list all codes.",
        epilog="example: ix explain IX403",
    )
    explaining.add_argument("codes", nargs="*", metavar="CODE", help="like IX403, ix403 or 403 (default: list all)")
    add_format(explaining)
    explaining.set_defaults(command="explaining:explain_command", notes=False)

    completing = commands.add_parser(
        "completion",
        help="what a shell needs to complete commands, options and codes",
        description="Print a script that completes commands, options and codes in a shell; it starts no Python.",
        epilog='bash: eval "$(ix completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit. '
        "fish: ix completion fish > ~/.config/fish/completions/ix.fish",
    )
    completing.add_argument("shell", choices=SHELLS, help="which shell")
    completing.set_defaults(command="completing:completion_command", notes=False, format="text")


def add_format(parser: argparse.ArgumentParser, *formats: str) -> None:
    choices = formats or ("text", "json")
    parser.add_argument("--format", choices=choices, default="text", help="for people, or for editors and CI")
