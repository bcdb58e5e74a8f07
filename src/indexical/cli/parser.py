"""The options of every command. A command is fetched when it is called: `ix check` does not wait for the others."""

from __future__ import annotations

import argparse
from typing import Any

from .. import __version__
from ..run import BACKENDS, EMITTED
from ..views import FORMS, SORTS
from .tools import Parser, add_check, add_format, add_models, add_tools


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

    add_check(commands)

    running = commands.add_parser(
        "run",
        help="evaluate a program and print or save its outputs",
        description="Evaluate a program. Inputs come from files or are drawn at random; figures in the file need none.",
        epilog="example: ix run attention.ix --random i=6,d=4 --seed 0 --outputs weights",
    )
    running.add_argument("file", metavar="FILE", help="a program; - reads standard input")
    _add_input(running)
    running.add_argument(
        "--random",
        nargs="?",
        const="",
        metavar="SIZES",
        help="draw the inputs that are not given, with sizes like i=6,d=4 (others: as one of their space, else 3)",
    )
    running.add_argument("--seed", type=int, default=0, help="of the random inputs (default: 0)")
    running.add_argument("--outputs", metavar="NAMES", help="definitions to compute, like weights,out")
    running.add_argument("--save", metavar="PATH", help="write the outputs to a .npz (or, for one, a .npy) file")
    _add_backend(running, "numpy")
    running.add_argument("--memory", metavar="SIZE", help="of the torch backend: the most that it takes, like 512MiB")
    running.add_argument("--precision", type=int, default=4, help="digits to print (default: 4)")
    add_format(running)
    running.set_defaults(command="commands:run_command", notes=False)

    telling = commands.add_parser(
        "facts",
        help="who asks, who answers, what is scanned, what it costs",
        description="What is true of a program, found without running it.",
        epilog="example: ix facts attention.ix --sizes b=1,h=8,i=4096,j=4096,d=64,e=64",
    )
    telling.add_argument("file", metavar="FILE", help="a program; - reads standard input")
    telling.add_argument("--sizes", metavar="SIZES", default="", help="sizes like i=4096,d=64, for figures of the cost")
    add_format(telling)
    telling.set_defaults(command="commands:facts_command", notes=False)

    planning = commands.add_parser(
        "plan",
        help="how a program would be computed: which kernels, what is never built, what was refused",
        description="The plan for arrays of some sizes, without running anything.",
        epilog="example: ix plan attention.ix --sizes b=1,h=8,i=4096,j=4096,d=64,e=64 --backend torch",
    )
    _add_imagined(planning)
    add_format(planning)
    planning.set_defaults(command="commands:plan_command", notes=False)

    emitting = commands.add_parser(
        "emit",
        help="write the program as plain NumPy or PyTorch source",
        description="Write the emitted module: one function `program`, which runs without Indexical.",
        epilog="example: ix emit attention.ix --backend torch -o attention.py",
    )
    _add_imagined(emitting)
    emitting.add_argument("-o", "--output", metavar="PATH", help="where to write it (default: standard output)")
    emitting.set_defaults(command="commands:emit_command", notes=False, format="text")

    _add_calculus(commands)
    _add_readings(commands)
    _add_reading(commands)
    _add_audit(commands)

    _add_show(commands)

    describing = commands.add_parser(
        "patterns",
        help="peaked, uniform, sparse, …: a word for every row of weights, and the figures behind it",
        description="What each row and each head of a weights tensor does. The last axis are the keys, the one before "
        "it the queries; all others are heads.",
        epilog="example: ix patterns weights.npy --sort entropy",
    )
    describing.add_argument("file", metavar="WEIGHTS.npy", help="an array; of a .npz file, the one that --name says")
    describing.add_argument("--name", help="the array of a .npz file (default: its only one, or `weights`)")
    describing.add_argument("--rows", action="store_true", help="every row, however many")
    describing.add_argument("--sort", choices=SORTS, default="head", help="the order of the heads (default: head)")
    describing.add_argument("--causal", action="store_true", help="nobody hears the future, also where a lone row asks")
    add_format(describing)
    describing.set_defaults(command="showing:patterns_command", notes=False)

    add_models(commands)
    add_tools(commands)

    caching = commands.add_parser(
        "cache",
        help="the folder in which emitted source is kept for the next process",
        description="Show where emitted source is kept, how many texts there are and how large they are; or why none "
        "is kept. IX_CACHE=0 keeps none, IX_CACHE=/a/folder keeps them there.",
    )
    caching.add_argument("--clear", action="store_true", help="remove all of them")
    add_format(caching)
    caching.set_defaults(command="caching:cache_command", notes=False)
    serving = commands.add_parser(
        "lsp",
        help="answer editors: findings as you type, facts, names, layout",
        description="The language server, for programs in .ix files, in Markdown pages and in Python files. An editor "
        "starts it, and speaks with it over standard input and output. It reads programs and never runs them.",
        epilog="docs/editors.md says how to set up VS Code, Neovim, Emacs, Helix and others.",
    )
    serving.add_argument("--stdio", action="store_true", help="standard input and output (the default)")
    serving.add_argument("--port", type=int, metavar="PORT", help="listen on this local port instead")
    serving.set_defaults(command="serving:lsp_command")

    return parser


def _add_show(commands: Any) -> None:
    """The command that writes pages."""
    showing = commands.add_parser(
        "show",
        help="a page for a browser: the program, its matrices, its steps, the arithmetic of every cell",
        description="Write one self-contained page of a program, of a lesson in Markdown that has programs in it, or "
        "of weights. It needs no network and no server.",
        epilog="example: ix show examples/lessons/named_softmax.ix -o page.html",
    )
    showing.add_argument(
        "file", metavar="FILE", nargs="?", help="a program, or a lesson that ends in .md; - reads standard input"
    )
    showing.add_argument("--weights", metavar="PATH", help="weights alone, of shape (..., queries, keys): .npy or .npz")
    showing.add_argument("--name", help="the array of a .npz file of weights (default: its only one, or `weights`)")
    showing.add_argument(
        "--tokens",
        metavar="TOKENS",
        help="of --weights, or what --model reads in place of a text: The,cat,sat, or a file with a list in JSON or a "
        "token a line",
    )
    showing.add_argument("--layers", metavar="PLACES", help="layers of --weights or --model to show, like 0,4-7")
    showing.add_argument(
        "--model", metavar="FOLDER", help="a model of Hugging Face's: a folder, a .gguf file, or a name in the cache"
    )
    showing.add_argument("--text", help="what --model reads")
    showing.add_argument("--download", action="store_true", help="fetch the model if it is not on this disk")
    showing.add_argument("-o", "--output", metavar="PATH", required=True, help="where to write the page")
    showing.add_argument("--beside", metavar="FILE", help="another program on the same inputs, differences marked")
    showing.add_argument(
        "--labels",
        action="append",
        default=[],
        metavar="NAME=TEXTS",
        help="names for the points of a coordinate or space, like position=The,cat,sat; may be repeated",
    )
    showing.add_argument("--title", help="of the page (default: the name of the file, or the lesson's heading)")
    _add_figures(showing)
    showing.add_argument(
        "--random",
        nargs="?",
        const="",
        metavar="SIZES",
        help="draw the inputs that are not given, with sizes like i=6,d=4",
    )
    showing.add_argument("--seed", type=int, default=0, help="of the random inputs (default: 0)")
    showing.set_defaults(command="showing:show_command", notes=False, format="text")


def _add_calculus(commands: Any) -> None:
    """The commands that make programs of programs."""
    deriving = commands.add_parser(
        "grad",
        help="the derivative of a program, as a program that one can read and run",
        description="Print the gradient of a definition OUT, as a program in named coordinates. It takes what the "
        "program takes and, where OUT is no scalar, its cotangent d_OUT: what a change of each of its points is worth. "
        "It gives d_X for every X of --by.",
        epilog="example: ix grad examples/causal_attention.ix --by Q,K,V",
    )
    deriving.add_argument("--of", metavar="NAMES", help="what to differentiate (default: the program's only output)")
    deriving.add_argument(
        "--by", metavar="NAMES", help="inputs, or definitions held independent, like Q,K,V (default: all real inputs)"
    )
    _add_derived(deriving)
    deriving.set_defaults(command="calculus:grad_command", notes=False)

    pushing = commands.add_parser(
        "jvp",
        help="how the outputs change when inputs change: forward mode, as a program",
        description="Print how definitions change when inputs change along a direction, as a program in named "
        "coordinates. It takes what the program takes and a direction dot_X for every X of --by; it gives dot_OUT for "
        "every OUT of --of.",
        epilog="example: ix jvp examples/causal_attention.ix --by Q",
    )
    pushing.add_argument(
        "--by", metavar="NAMES", help="inputs, or definitions held independent, like Q,K (default: all real inputs)"
    )
    pushing.add_argument("--of", metavar="NAMES", help="definitions (default: the program's outputs)")
    _add_derived(pushing)
    pushing.set_defaults(command="calculus:jvp_command", notes=False)

    batching = commands.add_parser(
        "batch",
        help="the program over a batch of some of its inputs",
        description="Print the program with one more coordinate in front of some inputs, and of all that depends on "
        "them. The other inputs are shared by the whole batch.",
        epilog="example: ix batch attention.ix --over b=Q,K,V",
    )
    batching.add_argument(
        "--over",
        action="append",
        metavar="NAME=INPUTS",
        required=True,
        help="the new coordinate and the inputs that have it, like b=Q,K; may be repeated",
    )
    _add_derived(batching)
    batching.set_defaults(command="calculus:batch_command", notes=False)


def _add_derived(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a program; - reads standard input")
    parser.add_argument("-o", "--output", metavar="PATH", help="where to write it (default: standard output)")
    add_format(parser)


def _add_reading(commands: Any) -> None:
    """The command that makes a program of a PyTorch callable."""
    reading = commands.add_parser(
        "read",
        help="the relation that a function of PyTorch or JAX, or a module, computes, as a program",
        description="Run a callable on arrays and on others like them, print the relation that it computes, and report "
        "what the checker finds in it, at its line of your file.",
        epilog="example: ix read model.py:attention --example inputs.npz --axes 'q=b h i d, k=b h j d' --causal",
    )
    reading.add_argument("target", metavar="TARGET", help="package.module:function or file.py:Module")
    reading.add_argument("--example", required=True, metavar="PATH", help=".npz of arrays, by the names of arguments")
    reading.add_argument("--axes", metavar="LETTERS", help="letters for the axes, like 'q=b h i d, k=b h j d'")
    reading.add_argument("--causal", action="store_true", help="no query may hear a later key")
    _add_library(reading)
    reading.add_argument("--notes", action="store_true", help="print notes as well")
    reading.add_argument("-o", "--output", metavar="PATH", help="where to write it (default: standard output)")
    add_format(reading)
    reading.set_defaults(command="reading:read_command")


def _add_readings(commands: Any) -> None:
    """The commands that read a program exactly."""
    exactly = commands.add_parser(
        "exact",
        help="the values as exact numbers, or as decimals of which every digit is proven",
        description="The values of a program as exact numbers: fractions, square roots, and softmax as named "
        "exponentials. An input that is not given is a symbol.",
        epilog="example: ix exact examples/lessons/named_softmax.ix",
    )
    _add_exact(exactly)
    exactly.add_argument("--digits", type=int, metavar="N", help="decimals of N significant digits, each proven")
    exactly.add_argument("--outputs", metavar="NAMES", help="definitions to print, like weights,out (default: all)")
    exactly.add_argument(
        "--form",
        choices=FORMS,
        default="structural",
        help="as the definition builds it (structural), by its value (canonical), with what it reads by name (named) "
        "or spelled out (spelled)",
    )
    add_format(exactly)
    exactly.set_defaults(command="readings:exact_command", notes=False)

    tracing = commands.add_parser(
        "trace",
        help="what one number scanned, term by term, and where each term came from",
        description="How a number came about. Without --at: every definition, in the order a person would compute "
        "them.",
        epilog="example: ix trace examples/lessons/three_by_two.ix --at 'out[2, 0]'",
    )
    _add_exact(tracing)
    tracing.add_argument("--at", metavar="POINT", help="the number to trace, like 'out[2, 0]'")
    tracing.add_argument("--depth", type=int, default=8, metavar="N", help="how far down to follow it (default: 8)")
    add_format(tracing)
    tracing.set_defaults(command="readings:trace_command", notes=False)

    measuring = commands.add_parser(
        "accuracy",
        help="the true error of a run, or of anybody's output, in units in the last place, and why",
        description="How far each output is from the true value for the same inputs, taken bit for bit: the mean, the "
        "worst point, and the reason (the mask, the scale, weights or scores of 16 bits, cancellation, arithmetic), "
        "each of them tested by computing it. Without --computed, the program is run.",
        epilog="example: ix accuracy attention.ix --input inputs.npz --computed out.npy --dtype bf16",
    )
    measuring.add_argument("file", metavar="FILE", help="a program; - reads standard input")
    _add_input(measuring)
    measuring.add_argument(
        "--random",
        nargs="?",
        const="",
        metavar="SIZES",
        help="draw the inputs that are not given, in f32, with sizes like i=6,d=4",
    )
    measuring.add_argument("--seed", type=int, default=0, help="of the random inputs (default: 0)")
    measuring.add_argument(
        "--computed",
        metavar="PATH",
        help="what was computed elsewhere: a .npy of the output, or a .npz with an array for each of several",
    )
    measuring.add_argument("--output", metavar="NAME", help="the definition that --computed, or the run, is about")
    measuring.add_argument(
        "--dtype",
        choices=("f64", "f32", "f16", "bf16"),
        help="of the numbers in --computed, where the file stores them wider: NumPy has no bf16",
    )
    measuring.add_argument(
        "--most", type=float, metavar="ULPS", help="exit 1 where the worst error is larger, or something is not finite"
    )
    _add_backend(measuring, "numpy")
    add_format(measuring)
    measuring.add_argument("--json", action="store_const", const="json", dest="format", help="short for --format json")
    measuring.set_defaults(command="readings:accuracy_command", notes=False)

    teaching = commands.add_parser(
        "lesson",
        help="a lesson in Markdown: the steps of a program, its figures, questions",
        description="Write a lesson on a program with inputs: what is given, every step with its figures and one of "
        "them worked out, questions. The figures are those of the program; edit the words, and `ix verify` checks them "
        "again. `ix show` makes a live page of it.",
        epilog="example: ix lesson attention.ix --value 'Q=[[1, 0], [0, 1]]' --input rest.npz -o lesson.md",
    )
    teaching.add_argument("file", metavar="FILE", help="a program; - reads standard input")
    _add_figures(teaching)
    teaching.add_argument(
        "--random",
        nargs="?",
        const="",
        metavar="SIZES",
        help="draw the inputs that are not given, to one place, with sizes like i=3,d=2",
    )
    teaching.add_argument("--seed", type=int, default=0, help="of the random inputs (default: 0)")
    teaching.add_argument("--title", help="of the lesson (default: the name of the file)")
    teaching.add_argument("-o", "--output", metavar="PATH", help="where to write it (default: standard output)")
    teaching.set_defaults(command="readings:lesson_command", notes=False, format="text")

    verifying = commands.add_parser(
        "verify",
        help="every published figure, of a program or a page: it holds, or fails with the exact value beside it",
        description="Check every `expect` of programs, exactly and figure by figure. Of a page in Markdown, check the "
        "figures that a comment ties to a program on it: `0.58 <!-- ix: weights[2, 2] -->` in the text, `<!-- ix: "
        "weights -->` above a table.",
        epilog="Exits 1 where a figure fails that the rounding of printed inputs does not explain (with --strict, also "
        "where it does), so that a build of documentation fails. example: ix verify docs/*.md",
    )
    verifying.add_argument(
        "files", nargs="+", metavar="FILE", help="programs, or pages that end in .md; - reads standard input"
    )
    verifying.add_argument("--strict", action="store_true", help="what rounding explains fails too")
    _add_figures(verifying)
    add_format(verifying)
    verifying.set_defaults(command="readings:verify_command", notes=False)


def _add_audit(commands: Any) -> None:
    """The command that looks at code written elsewhere."""
    auditing = commands.add_parser(
        "audit",
        help="the laws of attention on code written elsewhere: what is broken, by which inputs, why",
        description="Test the laws of attention on a function or a module, or with --model those of a whole model. "
        "What the contract does not declare is reported as it is found, and not judged.",
        epilog="Exits 1 where a law is broken. example: ix audit package.module:Module --example inputs.npz "
        "--axes 'x=b i c, out=b i c' --causal --heads 8",
    )
    auditing.add_argument("target", metavar="MODULE:NAME", help="package.module:name or file.py:name; a class is built")
    auditing.add_argument("--example", metavar="FILE", help="a .npz file, or module:function that gives arrays by name")
    auditing.add_argument("--axes", metavar="AXES", help="like 'q=b h i d, k=b h j d, v=b h j e, out=b h i e'")
    _add_library(auditing)
    auditing.add_argument("--model", action="store_true", help="a whole model, from tokens to logits")
    auditing.add_argument("--bidirectional", action="store_true", help="with --model: every token may hear every other")
    auditing.add_argument("--length", type=int, default=7, metavar="N", help="with --model: tokens (default: 7)")
    auditing.add_argument("--contract", metavar="FILE.toml", help="a contract; the options below add to it")
    places = ("square", "bottom-right", "none")
    auditing.add_argument("--causal", nargs="?", const="square", choices=places, help="no key after the query is heard")
    auditing.add_argument("--window", type=int, metavar="W", help="a query hears itself and the W - 1 keys before it")
    auditing.add_argument("--mask", action="append", default=[], metavar="NAME=KIND", help="keep, drop or additive")
    auditing.add_argument("--documents", metavar="NAME", help="the array of document ids")
    auditing.add_argument("--regions", metavar="IDS", help="one id a position, like 0,0,1,1")
    auditing.add_argument("--scale", metavar="EXPR", help="a number, or an expression like '1/sqrt(d)'")
    auditing.add_argument("--softcap", type=float, metavar="CAP", help="scores are cap * tanh(score / cap)")
    auditing.add_argument("--alibi", metavar="SLOPES", help="one slope a head, like 0.5,0.25")
    auditing.add_argument("--rotary", choices=("half", "pair", "relative"), help="how features are rotated")
    auditing.add_argument("--rows", choices=("1", "<=1", "free"), help="what weights of a query sum to (default: 1)")
    auditing.add_argument("--kernel", metavar="MAP", help="of a linear attention, like elu+1")
    auditing.add_argument("--empty", choices=("zero",), help="what a query with no allowed key gives")
    auditing.add_argument("--logit-range", type=float, metavar="R", help="masks hold below such scores (default: 1000)")
    auditing.add_argument("--attends", metavar="AXIS", help="the axis normalised over, where it is not the key")
    auditing.add_argument("--heads", type=int, metavar="H", help="how many heads there are")
    auditing.add_argument("--groups", type=int, metavar="G", help="how many query heads share a key head")
    auditing.add_argument("--packing", metavar="AXES", help="the layout of a fused weight, like '3 h d'")
    auditing.add_argument("--residual", action="store_true", help="`x` is added to the output")
    auditing.add_argument("--prefill", action="store_true", help="few queries give the last rows of one full pass")
    auditing.add_argument("-o", "--output", metavar="PATH", help="where to write the report (default: standard output)")
    formats = ("text", "json", "sarif", "junit", "html")
    auditing.add_argument("--format", choices=formats, default="text", help="of the report (default: text)")
    auditing.set_defaults(command="auditing:audit_command", notes=False)


def _add_library(parser: argparse.ArgumentParser) -> None:
    help = "of the arrays of a .npz file (default: jax for what is written with it, else torch)"
    parser.add_argument("--library", choices=("torch", "jax", "numpy"), help=help)


def _add_exact(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a program; - reads standard input")
    _add_figures(parser)


def _add_figures(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--value",
        action="append",
        default=[],
        metavar="NAME=FIGURES",
        help="""an input as it is written, like 'Q=[[1, 0.1], ["1/3", 2]]': 0.1 is one tenth; may be repeated""",
    )
    _add_input(parser)
    parser.add_argument("--sizes", metavar="SIZES", default="", help="sizes like e=3, for inputs without values")


def _add_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input",
        "--inputs",
        action="append",
        default=[],
        metavar="[NAME=]PATH",
        help="NAME=x.npy binds one input; x.npz binds every input it has an array for; may be repeated",
    )


def _add_backend(parser: argparse.ArgumentParser, usual: str) -> None:
    parser.add_argument("--backend", choices=BACKENDS, default=usual, help=f"what computes (default: {usual})")
    parser.add_argument("--device", metavar="NAME", help="of the torch backend: cpu, cuda, … (default: cpu)")


def _add_imagined(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a program; - reads standard input")
    parser.add_argument("--sizes", metavar="SIZES", default="", help="sizes like i=4096,d=64 (others: 3)")
    parser.add_argument("--outputs", metavar="NAMES", help="definitions to compute, like weights,out")
    parser.add_argument("--backend", choices=EMITTED, default="torch", help="what computes (default: torch)")
    parser.add_argument("--device", default="cpu", help="of the torch backend: cpu, cuda, … (default: cpu)")
    parser.add_argument("--dtype", choices=("f16", "bf16", "f32", "f64"), default="f32", help="of reals (default: f32)")
    parser.add_argument("--isolate", action="store_true", help="keep NaN and infinity from those who may not hear them")
    keep = "keep the weights that a derivative reads, rather than make them again tile by tile"
    parser.add_argument("--keep", action="store_true", help=keep)
    budget = "the most that a call in which all reals learn takes beside its inputs, there and back: 2GiB, 512MiB, …"
    parser.add_argument("--memory", metavar="SIZE", help=budget)
