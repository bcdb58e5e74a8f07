"""The commands on programs: what `--help` says about each, and what it is given."""

from __future__ import annotations

from ..views import FORMS
from .options import (
    BACKEND,
    DEVICE,
    FIGURES,
    FILE,
    FORMAT,
    IMAGINED,
    INPUT,
    NOTES,
    OUTPUTS,
    SEED,
    VALUE,
    WHERE,
    Command,
    flag,
    given,
    repeated,
)

ON_PROGRAMS = (
    Command(
        "check",
        "checking:check_command",
        "every mistake at once, a caret under each",
        (
            "Report every mistake in programs, without running them. Silent where all is well. Programs stand in "
            ".ix files, in Python files (`@ix.program`, `ix.compile`) and in the ix blocks of Markdown pages."
        ),
        (
            "Exits 1 where there is an error (with --strict, also where there is a warning; with --diff, also "
            "where there is something to mend). `ix explain CODE` says more about a finding."
        ),
        (
            given("files FILE", "programs, or folders of them; - reads standard input", nargs="+"),
            flag("--strict", "warnings fail too"),
            NOTES,
            flag("--fix", "mend what can be mended without a choice, in the files"),
            flag("--diff", "print what --fix would change, and change nothing"),
            flag("--watch", "check again whenever a file changes, until Ctrl-C"),
            given(
                "--format",
                "for people, or for editors and CI",
                default="text",
                choices=("text", "json", "sarif", "github"),
            ),
        ),
    ),
    Command(
        "run",
        "commands:run_command",
        "evaluate a program and print or save its outputs",
        "Evaluate a program. Inputs come from files, are written out or are drawn; figures in the file need none.",
        "example: ix run attention.ix --random i=6,d=4 --seed 0 --outputs weights",
        (
            FILE,
            VALUE,
            INPUT,
            given(
                "--random SIZES",
                "draw the inputs that are not given, with sizes like i=6,d=4 (others: as one of their space, else 3)",
                nargs="?",
                const="",
            ),
            SEED,
            OUTPUTS,
            given("--save PATH", "write the outputs to a .npz (or, for one, a .npy) file"),
            BACKEND,
            DEVICE,
            given("--memory SIZE", "of the torch backend: the most that it takes, like 512MiB"),
            given("--precision", "digits to print (default: 4)", default=4, type=int),
            FORMAT,
        ),
    ),
    Command(
        "facts",
        "commands:facts_command",
        "who asks, who answers, what is scanned, what it costs",
        "What is true of a program, found without running it.",
        "example: ix facts attention.ix --sizes b=1,h=8,i=4096,j=4096,d=64,e=64",
        (
            FILE,
            given("--sizes SIZES", "sizes like i=4096,d=64, for figures of the cost", default=""),
            FORMAT,
        ),
    ),
    Command(
        "plan",
        "commands:plan_command",
        "how a program would be computed: which kernels, what is never built, what was refused",
        "The plan for arrays of some sizes, without running anything.",
        "example: ix plan attention.ix --sizes b=1,h=8,i=4096,j=4096,d=64,e=64 --backend torch",
        (
            FILE,
            *IMAGINED,
            FORMAT,
            flag("--passes", "every rule on the way from the program to what runs; with --sizes, also what that costs"),
        ),
    ),
    Command(
        "emit",
        "commands:emit_command",
        "write the program as plain NumPy, PyTorch or JAX source",
        "Write the emitted module: one function `program`, which runs without Indexical.",
        "example: ix emit attention.ix --backend torch -o attention.py",
        (
            FILE,
            *IMAGINED,
            WHERE,
        ),
    ),
    Command(
        "grad",
        "calculus:grad_command",
        "the derivative of a program, as a program that one can read and run",
        (
            "Print the gradient of a definition OUT, as a program in named coordinates. It takes what the "
            "program takes and, where OUT is no scalar, its cotangent d_OUT: what a change of each of its points "
            "is worth. It gives d_X for every X of --by."
        ),
        "example: ix grad examples/causal_attention.ix --by Q,K,V",
        (
            given("--of NAMES", "what to differentiate (default: the program's only output)"),
            given("--by NAMES", "inputs, or definitions held independent, like Q,K,V (default: all real inputs)"),
            FILE,
            WHERE,
            FORMAT,
        ),
    ),
    Command(
        "jvp",
        "calculus:jvp_command",
        "how the outputs change when inputs change: forward mode, as a program",
        (
            "Print how definitions change when inputs change along a direction, as a program in named "
            "coordinates. It takes what the program takes and a direction dot_X for every X of --by; it gives "
            "dot_OUT for every OUT of --of."
        ),
        "example: ix jvp examples/causal_attention.ix --by Q",
        (
            given("--by NAMES", "inputs, or definitions held independent, like Q,K (default: all real inputs)"),
            given("--of NAMES", "definitions (default: the program's outputs)"),
            FILE,
            WHERE,
            FORMAT,
        ),
    ),
    Command(
        "batch",
        "calculus:batch_command",
        "the program over a batch of some of its inputs",
        (
            "Print the program with one more coordinate in front of some inputs, and of all that depends on "
            "them. The other inputs are shared by the whole batch."
        ),
        "example: ix batch attention.ix --over b=Q,K,V",
        (
            repeated(
                "--over NAME=INPUTS",
                "the new coordinate and the inputs that have it, like b=Q,K; may be repeated",
                required=True,
            ),
            FILE,
            WHERE,
            FORMAT,
        ),
    ),
    Command(
        "exact",
        "readings:exact_command",
        "the values as exact numbers, or as decimals of which every digit is proven",
        (
            "The values of a program as exact numbers: fractions, square roots, and softmax as named "
            "exponentials. An input that is not given is a symbol."
        ),
        "example: ix exact examples/lessons/named_softmax.ix",
        (
            FILE,
            *FIGURES,
            given("--digits N", "decimals of N significant digits, each proven", type=int),
            given("--outputs NAMES", "definitions to print, like weights,out (default: all)"),
            given(
                "--form",
                (
                    "as the definition builds it (structural), by its value (canonical), with what it reads by name "
                    "(named) or spelled out (spelled)"
                ),
                default="structural",
                choices=FORMS,
            ),
            FORMAT,
        ),
    ),
    Command(
        "trace",
        "readings:trace_command",
        "what one number scanned, term by term, and where each term came from",
        "How a number came about. Without --at: every definition, in the order a person would compute them.",
        "example: ix trace examples/lessons/three_by_two.ix --at 'out[2, 0]'",
        (
            FILE,
            *FIGURES,
            given("--at POINT", "the number to trace, like 'out[2, 0]'"),
            given("--depth N", "how far down to follow it (default: 8)", default=8, type=int),
            FORMAT,
        ),
    ),
    Command(
        "accuracy",
        "readings:accuracy_command",
        "the true error of a run, or of anybody's output, in units in the last place, and why",
        (
            "How far each output is from the true value for the same inputs, taken bit for bit: the mean, the "
            "worst point, and the reason (the mask, the scale, weights or scores of 16 bits, cancellation, "
            "arithmetic), each of them tested by computing it. Without --computed, the program is run."
        ),
        "example: ix accuracy attention.ix --input inputs.npz --computed out.npy --dtype bf16",
        (
            FILE,
            INPUT,
            given(
                "--random SIZES",
                "draw the inputs that are not given, in f32, with sizes like i=6,d=4",
                nargs="?",
                const="",
            ),
            SEED,
            given(
                "--computed PATH",
                "what was computed elsewhere: a .npy of the output, or a .npz with an array for each of several",
            ),
            given("--output NAME", "the definition that --computed, or the run, is about"),
            given(
                "--dtype",
                "of the numbers in --computed, where the file stores them wider: NumPy has no bf16",
                choices=("f64", "f32", "f16", "bf16"),
            ),
            given("--most ULPS", "exit 1 where the worst error is larger, or something is not finite", type=float),
            BACKEND,
            DEVICE,
            FORMAT,
            given("--json", "short for --format json", action="store_const", dest="format", const="json"),
        ),
    ),
    Command(
        "lesson",
        "readings:lesson_command",
        "a lesson in Markdown: the steps of a program, its figures, questions",
        (
            "Write a lesson on a program with inputs: what is given, every step with its figures and one of them "
            "worked out, questions. The figures are those of the program; edit the words, and `ix verify` checks "
            "them again. `ix show` makes a live page of it."
        ),
        "example: ix lesson attention.ix --value 'Q=[[1, 0], [0, 1]]' --input rest.npz -o lesson.md",
        (
            FILE,
            *FIGURES,
            given(
                "--random SIZES",
                "draw the inputs that are not given, to one place, with sizes like i=3,d=2",
                nargs="?",
                const="",
            ),
            SEED,
            given("--title", "of the lesson (default: the name of the file)"),
            WHERE,
        ),
    ),
    Command(
        "verify",
        "readings:verify_command",
        "every published figure, of a program or a page: it holds, or fails with the exact value beside it",
        (
            "Check every `expect` of programs, exactly and figure by figure. Of a page in Markdown or HTML and of a "
            "notebook, check the figures that a comment ties to a program on it: `0.58 <!-- ix: weights[2, 2] -->` in "
            "the text, `<!-- ix: weights -->` above a table, a formula or a block of code, and `# ix: weights` in a "
            "cell for what it prints."
        ),
        (
            "Exits 1 where a figure fails that the rounding of printed inputs does not explain (with --strict, "
            "also where it does), so that a build of documentation fails. example: ix verify docs/*.md"
        ),
        (
            given(
                "files FILE",
                "programs, or pages that end in .md, .html or .ipynb; - reads standard input",
                nargs="+",
            ),
            flag("--strict", "what rounding explains fails too"),
            *FIGURES,
            FORMAT,
        ),
    ),
)
