"""The options that several commands have, and how an option is written down."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..run import BACKENDS, EMITTED


class Argument(NamedTuple):
    """An option of a command: its names and what stands for its value, as `--help` shows them, and what argparse is
    told about it."""

    shown: str
    settings: dict[str, Any]

    @property
    def names(self) -> list[str]:
        words = self.shown.split()
        return [word for word in words if word.startswith("-")] or words[:1]

    @property
    def metavar(self) -> str | None:
        return next(iter(self.shown.split()[len(self.names) :]), None)


def given(shown: str, help: str, **settings: Any) -> Argument:
    """An argument with a value: `file FILE`, `-o --output PATH`."""
    return Argument(shown, {"help": help, **settings})


def repeated(shown: str, help: str, **settings: Any) -> Argument:
    """One that may be given several times."""
    return given(shown, help, action="append", default=[], **settings)


def flag(shown: str, help: str) -> Argument:
    return given(shown, help, action="store_true")


class Command(NamedTuple):
    """A command: the function that does it (`module:function`, fetched when it is called), what `--help` says, and its
    arguments."""

    name: str
    function: str
    help: str
    description: str
    epilog: str | None
    arguments: tuple[Argument, ...]


NOTES = flag("--notes", "print notes as well")
FILE = given("file FILE", "a program; - reads standard input")
INPUT = repeated(
    "--input --inputs [NAME=]PATH",
    "NAME=x.npy binds one input; x.npz binds every input it has an array for; may be repeated",
)
SEED = given("--seed", "of the random inputs (default: 0)", default=0, type=int)
OUTPUTS = given("--outputs NAMES", "definitions to compute, like weights,out")
BACKEND = given("--backend", "what computes (default: numpy)", default="numpy", choices=BACKENDS)
DEVICE = given("--device NAME", "of the torch backend: cpu, cuda, … (default: cpu)")
FORMAT = given("--format", "for people, or for editors and CI", default="text", choices=("text", "json"))
IMAGINED_SIZES = given("--sizes SIZES", "sizes like i=4096,d=64 (others: 3)", default="")
EMITTED_BY = given("--backend", "what computes (default: torch)", default="torch", choices=EMITTED)
EMITTED_FOR = given("--device", "of the torch backend: cpu, cuda, … (default: cpu)")
DTYPE = given("--dtype", "of reals (default: f32)", default="f32", choices=("f16", "bf16", "f32", "f64"))
ISOLATE = flag("--isolate", "keep NaN and infinity from those who may not hear them")
KEEP = flag("--keep", "keep the weights that a derivative reads, rather than make them again tile by tile")
MEMORY = given(
    "--memory SIZE",
    "the most that a call in which all reals learn takes beside its inputs, there and back: 2GiB, 512MiB, …",
)
WHERE = given("-o --output PATH", "where to write it (default: standard output)")
VALUE = repeated(
    "--value NAME=FIGURES",
    """an input as it is written, like 'Q=[[1, 0.1], ["1/3", 2]]': 0.1 is one tenth; may be repeated""",
)
LEFT_SIZES = given("--sizes SIZES", "sizes like e=3, for inputs without values", default="")
LIBRARY = given(
    "--library",
    "of the arrays of a .npz file (default: jax for what is written with it, else torch)",
    choices=("torch", "jax", "numpy"),
)
MODEL = given("model MODEL", "a .gguf file, or a folder with config.json and safetensors")
COLOR = given(
    "--color",
    "in colour: on a terminal, unless NO_COLOR or FORCE_COLOR say otherwise (auto), always or never",
    default="auto",
    choices=("auto", "always", "never"),
)
QUIET = flag("--quiet", "say nothing on standard error")

# What a program without values is given, and what a call is imagined with.
FIGURES = (VALUE, INPUT, LEFT_SIZES)
IMAGINED = (IMAGINED_SIZES, OUTPUTS, EMITTED_BY, EMITTED_FOR, DTYPE, ISOLATE, KEEP, MEMORY)
