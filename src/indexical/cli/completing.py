"""The command that prints what shells complete with: a script that knows every command, option and choice."""

from __future__ import annotations

import argparse
import re
from argparse import Namespace
from collections.abc import Iterator

from ..codes import CODES
from ..records import dataclass
from .parser import build_parser


@dataclass(frozen=True, slots=True)
class Option:
    """An option, or a word that stands by its place, which has no names. What it takes is one of `choices`, if there
    are any, else nothing (`flag`) or a file."""

    names: tuple[str, ...]
    help: str
    choices: tuple[str, ...]
    flag: bool


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    help: str
    options: tuple[Option, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The words that may stand where a file does not."""
        return tuple(choice for option in self.options if not option.names for choice in option.choices)


def completion_command(options: Namespace) -> int:
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell]
    print("\n".join(write(_commands())))
    return 0


def _commands() -> list[Command]:
    """Every command with its options, as the parser has them."""
    (group,) = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    helps = {action.dest: action.help or "" for action in group._choices_actions}
    return [
        Command(name, helps.get(name, ""), tuple(map(_option, parser._actions)))
        for name, parser in group.choices.items()
    ]


def _option(action: argparse.Action) -> Option:
    choices = tuple(CODES) if action.dest == "codes" else tuple(map(str, action.choices or ()))
    text = (action.help or "").replace("%%", "%")
    return Option(tuple(action.option_strings), text, choices, action.nargs == 0)


def _bash(commands: list[Command]) -> Iterator[str]:
    yield "_ix() {"
    yield '    local now="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words="" options=""'
    names = " ".join(command.name for command in commands)
    yield f'    if [ "$COMP_CWORD" -eq 1 ]; then words="{names}"; options="--help --version"; else'
    yield '    case "${COMP_WORDS[1]}" in'
    for command in commands:
        named = " ".join(name for option in command.options for name in option.names)
        yield f'        {command.name}) options="{named}"; words="{" ".join(command.words)}"'
        if any(option.names and option.choices for option in command.options):
            yield '            case "$before" in'
            for option in command.options:
                if option.names and option.choices:
                    choices = " ".join(option.choices)
                    yield f'                {"|".join(option.names)}) words="{choices}"; options="" ;;'
            yield "            esac"
        yield "            ;;"
    yield "    esac; fi"
    yield '    case "$now" in -*) words="$options" ;; esac'
    yield '    if [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "$now"))'
    yield '    else COMPREPLY=($(compgen -f -- "$now")); fi'
    yield "}"
    yield "complete -o filenames -F _ix ix"


def _zsh(commands: list[Command]) -> Iterator[str]:
    yield "#compdef ix"
    yield "_ix() {"
    yield '    local curcontext="$curcontext" state line'
    yield "    local -a commands=("
    yield from (f"        {_quoted(f'{each.name}:{each.help}')}" for each in commands)
    yield "    )"
    yield "    _arguments -C '1:command:->command' '*::argument:->argument'"
    yield "    case $state in"
    yield "        command) _describe command commands ;;"
    yield "        argument) case $line[1] in"
    for command in commands:
        specifications = " ".join(_quoted(each) for option in command.options for each in _specified(option))
        files = _quoted(f"*:word:({' '.join(command.words)})" if command.words else "*:file:_files")
        yield f"            {command.name}) _arguments {specifications} {files} ;;"
    yield "        esac ;;"
    yield "    esac"
    yield "}"
    yield "compdef _ix ix"


def _specified(option: Option) -> Iterator[str]:
    """The options of zsh's `_arguments`."""
    text = option.help.replace("[", "(").replace("]", ")").replace(":", "\\:")
    choices = " ".join(re.sub(r"([^\w.-])", r"\\\1", choice) for choice in option.choices)
    taken = "" if option.flag else f":value:({choices})" if choices else ":value:_files"
    yield from (f"{name}[{text}]{taken}" for name in option.names)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish(commands: list[Command]) -> Iterator[str]:
    for command in commands:
        yield f"complete -c ix -f -n __fish_use_subcommand -a {command.name} -d {_fished(command.help)}"
    for command in commands:
        when = f"-n '__fish_seen_subcommand_from {command.name}'"
        for option in command.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            choices = " ".join(each if each.isalnum() else f'"{each}"' for each in option.choices)
            taken = "" if option.flag else f" -xa '{choices}'" if choices else " -r -F"
            if names:
                yield f"complete -c ix {when} {names}{taken} -d {_fished(option.help)}"
        if command.words:
            yield f"complete -c ix -f {when} -a '{' '.join(command.words)}'"


def _fished(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
