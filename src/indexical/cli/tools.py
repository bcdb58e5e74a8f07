"""The options of the commands check, fmt, explain and completion, and of those that run language models."""

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


def add_models(commands: Any) -> None:
    """The commands that run language models."""
    writing = commands.add_parser(
        "generate",
        help="continue a text with a language model, from its GGUF or safetensors",
        description="Continue a text. The model is read from a .gguf file, or from a folder with config.json, "
        "safetensors and a tokenizer; its program is the one of its family, in named coordinates. The text goes to "
        "standard output as it is written, what there is to say about it to standard error.",
        epilog='example: ix generate SmolLM2-135M-Instruct.Q4_1.gguf "The capital of France is" --max-tokens 20',
    )
    writing.add_argument("model", metavar="MODEL", help="a .gguf file, or a folder with config.json and safetensors")
    writing.add_argument("prompt", metavar="PROMPT", help="what is continued; @file reads a file, - standard input")
    writing.add_argument("--max-tokens", type=int, default=64, metavar="N", help="at most so many (default: 64)")
    writing.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="0 takes the likeliest token (default), 1 draws"
    )
    writing.add_argument("--top-k", type=int, metavar="K", help="draw among the K likeliest tokens")
    writing.add_argument("--top-p", type=float, metavar="P", help="draw among the fewest with this probability in all")
    writing.add_argument("--seed", type=int, default=0, help="of what is drawn (default: 0)")
    writing.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end before this text; may be repeated"
    )
    writing.add_argument("--only-new", action="store_true", help="leave out the prompt")
    writing.add_argument(
        "--page", metavar="PATH", help="write a page with the weights of all heads over the text, also while it grows"
    )
    writing.add_argument("--title", help="of the page (default: the name of the model)")
    _add_quiet(writing, "generate")

    embedding = commands.add_parser(
        "embed",
        help="a point for each text, by an encoder",
        description="Embed texts with a BERT encoder, and print how near they are to each other: the cosine of every "
        "pair. --format json prints the points themselves, --save writes them.",
        epilog='example: ix embed all-MiniLM-L6-v2/ "a cat on a mat" "a feline on a rug" "the stock market"',
    )
    embedding.add_argument("model", metavar="MODEL", help="a folder with config.json, safetensors and a tokenizer")
    embedding.add_argument("texts", metavar="TEXT", nargs="+", help="a text; @file reads a file, - standard input")
    embedding.add_argument("--lines", action="store_true", help="each line is a text of its own")
    embedding.add_argument("--save", metavar="PATH", help="write the points to a .npy or .npz file")
    _add_quiet(embedding, "embed")

    judging = commands.add_parser(
        "perplexity",
        help="how well a language model foresees a text",
        description="Print the perplexity of a text: the exponential of the mean surprise of its tokens, in nats.",
        epilog="example: ix perplexity model.gguf @page.txt",
    )
    judging.add_argument("model", metavar="MODEL", help="a .gguf file, or a folder with config.json and safetensors")
    judging.add_argument("text", metavar="TEXT", help="a text; @file reads a file, - standard input")
    _add_quiet(judging, "perplexity")


def _add_quiet(command: Any, name: str) -> None:
    command.add_argument("--quiet", action="store_true", help="say nothing on standard error")
    add_format(command)
    command.set_defaults(command=f"generating:{name}_command", notes=False)
