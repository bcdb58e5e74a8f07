"""The commands on code, weights and models from elsewhere, and those around the language."""

from __future__ import annotations

from ..views import SORTS
from .options import FIGURES, FORMAT, LIBRARY, MODEL, NOTES, QUIET, SEED, WHERE, Command, flag, given, repeated

SHELLS = ("bash", "zsh", "fish")

ON_OTHERS = (
    Command(
        "read",
        "reading:read_command",
        "the relation that a function of PyTorch or JAX, or a module, computes, as a program",
        (
            "Run a callable on arrays and on others like them, print the relation that it computes, and report "
            "what the checker finds in it, at its line of your file."
        ),
        "example: ix read model.py:attention --example inputs.npz --axes 'q=b h i d, k=b h j d' --causal",
        (
            given("target TARGET", "package.module:function or file.py:Module"),
            given("--example PATH", ".npz of arrays, by the names of arguments", required=True),
            given("--axes LETTERS", "letters for the axes, like 'q=b h i d, k=b h j d'"),
            flag("--causal", "no query may hear a later key"),
            LIBRARY,
            NOTES,
            WHERE,
            FORMAT,
        ),
    ),
    Command(
        "audit",
        "auditing:audit_command",
        "the laws of attention on code written elsewhere: what is broken, by which inputs, why",
        (
            "Test the laws of attention on a whole model and every attention inside it; or with --example on one "
            "function or module. What no contract declares is reported as it is found, and not judged. Without "
            "a target, all are audited that [tool.indexical.audit] of pyproject.toml, or ix-audit.toml, declares."
        ),
        (
            "Exits 0 where all was judged and no law is broken, 1 where one is, 2 where the code does not run or the "
            "command is at fault. examples: ix audit model.py:build; ix audit package.module:Module --example "
            "inputs.npz --axes 'x=b i c, out=b i c' --causal --heads 8; ix audit --compare eager.py:Attention "
            "flash.py:Attention"
        ),
        (
            given(
                "targets MODULE:NAME",
                "package.module:name or file.py:name: a model, a module, a class of them or a function that builds one",
                nargs="*",
            ),
            given("--example FILE", "of one attention: a .npz file, or module:function that gives arrays by name"),
            given("--axes AXES", "of the example: like 'q=b h i d, k=b h j d, v=b h j e, out=b h i e' (else guessed)"),
            LIBRARY,
            flag("--model", "a whole model: the default without --example; with it, on these inputs"),
            flag("--bidirectional", "of a model: every token may hear every other"),
            given("--length N", "of a model: tokens (default: 7)", type=int),
            flag("--compare", "whether two targets, or one in several --settings, compute the same numbers"),
            given("--settings NAMES", "with --compare: how one model attends, like eager,sdpa,flex"),
            flag("--init", "write ix-audit.toml, which declares what was found"),
            flag("--strict", "exit 1 also where something that is declared was not judged"),
            given("--baseline FILE", "accept the findings that it knows; new ones fail"),
            given("--write-baseline FILE", "write all findings of this run to it, and accept them"),
            given("--contract FILE.toml", "a contract; the options below add to it"),
            given(
                "--causal",
                "no key after the query is heard",
                nargs="?",
                const="square",
                choices=("square", "bottom-right", "none"),
            ),
            given("--window W", "a query hears itself and the W - 1 keys before it", type=int),
            repeated("--mask NAME=KIND", "keep, drop or additive"),
            given("--documents NAME", "the array of document ids"),
            given("--regions IDS", "one id a position, like 0,0,1,1"),
            given("--scale EXPR", "a number, or an expression like '1/sqrt(d)'"),
            given("--softcap CAP", "scores are cap * tanh(score / cap)", type=float),
            given("--alibi SLOPES", "one slope a head, like 0.5,0.25"),
            given("--rotary", "how features are rotated", choices=("half", "pair", "relative")),
            given("--rows", "what weights of a query sum to (default: 1)", choices=("1", "<=1", "free")),
            given("--kernel MAP", "of a linear attention, like elu+1"),
            given("--empty", "what a query with no allowed key gives", choices=("zero",)),
            given("--logit-range R", "masks hold below such scores (default: 1000)", type=float),
            given("--attends AXIS", "the axis normalised over, where it is not the key"),
            given("--heads H", "how many heads there are", type=int),
            given("--groups G", "how many query heads share a key head", type=int),
            given("--packing AXES", "the layout of a fused weight, like '3 h d'"),
            flag("--residual", "`x` is added to the output"),
            flag("--prefill", "few queries give the last rows of one full pass"),
            given("-o --output PATH", "where to write the report (default: standard output)"),
            given(
                "--format",
                "of the report (default: text)",
                default="text",
                choices=("text", "json", "sarif", "github", "junit", "html"),
            ),
        ),
    ),
    Command(
        "show",
        "showing:show_command",
        "a page for a browser: the program, its matrices, its steps, the arithmetic of every cell",
        (
            "Write one self-contained page of a program, of a lesson in Markdown that has programs in it, or of "
            "weights. It needs no network and no server."
        ),
        "example: ix show examples/lessons/named_softmax.ix -o page.html",
        (
            given("file FILE", "a program, or a lesson that ends in .md; - reads standard input", nargs="?"),
            given("--weights PATH", "weights alone, of shape (..., queries, keys): .npy or .npz"),
            given("--name", "the array of a .npz file of weights (default: its only one, or `weights`)"),
            given(
                "--tokens TOKENS",
                (
                    "of --weights, or what --model reads in place of a text: The,cat,sat, or a file with a list in "
                    "JSON or a token a line"
                ),
            ),
            given("--layers PLACES", "layers of --weights or --model to show, like 0,4-7"),
            given("--model FOLDER", "a model of Hugging Face's: a folder, a .gguf file, or a name in the cache"),
            given("--text", "what --model reads"),
            flag("--download", "fetch the model if it is not on this disk"),
            given("-o --output PATH", "where to write the page", required=True),
            given("--beside FILE", "another program on the same inputs, differences marked"),
            repeated(
                "--labels NAME=TEXTS",
                "names for the points of a coordinate or space, like position=The,cat,sat; may be repeated",
            ),
            given("--title", "of the page (default: the name of the file, or the lesson's heading)"),
            *FIGURES,
            given("--random SIZES", "draw the inputs that are not given, with sizes like i=6,d=4", nargs="?", const=""),
            SEED,
        ),
    ),
    Command(
        "patterns",
        "showing:patterns_command",
        "peaked, uniform, sparse, …: a word for every row of weights, and the figures behind it",
        (
            "What each row and each head of a weights tensor does. The last axis are the keys, the one before it "
            "the queries; all others are heads."
        ),
        "example: ix patterns weights.npy --sort entropy",
        (
            given("file WEIGHTS.npy", "an array; of a .npz file, the one that --name says"),
            given("--name", "the array of a .npz file (default: its only one, or `weights`)"),
            flag("--rows", "every row, however many"),
            given(
                "--sort",
                "the order of the heads (default: head)",
                default="head",
                choices=SORTS,
            ),
            flag("--causal", "nobody hears the future, also where a lone row asks"),
            FORMAT,
        ),
    ),
    Command(
        "generate",
        "generating:generate_command",
        "continue a text with a language model, from its GGUF or safetensors",
        (
            "Continue a text. The model is read from a .gguf file, or from a folder with config.json, "
            "safetensors and a tokenizer; its program is the one of its family, in named coordinates. The text "
            "goes to standard output as it is written, what there is to say about it to standard error."
        ),
        'example: ix generate SmolLM2-135M-Instruct.Q4_1.gguf "The capital of France is" --max-tokens 20',
        (
            MODEL,
            given("prompt PROMPT", "what is continued; @file reads a file, - standard input"),
            given("--max-tokens N", "at most so many (default: 64)", default=64, type=int),
            given("--temperature T", "0 takes the likeliest token (default), 1 draws", default=0.0, type=float),
            given("--top-k K", "draw among the K likeliest tokens", type=int),
            given("--top-p P", "draw among the fewest with this probability in all", type=float),
            given("--seed", "of what is drawn (default: 0)", default=0, type=int),
            repeated("--stop TEXT", "end before this text; may be repeated"),
            flag("--only-new", "leave out the prompt"),
            given("--page PATH", "write a page with the weights of all heads over the text, also while it grows"),
            given("--title", "of the page (default: the name of the model)"),
            QUIET,
            FORMAT,
        ),
    ),
    Command(
        "embed",
        "generating:embed_command",
        "a point for each text, by an encoder",
        (
            "Embed texts with a BERT encoder, and print how near they are to each other: the cosine of every "
            "pair. --format json prints the points themselves, --save writes them."
        ),
        'example: ix embed all-MiniLM-L6-v2/ "a cat on a mat" "a feline on a rug" "the stock market"',
        (
            given("model MODEL", "a folder with config.json, safetensors and a tokenizer"),
            given("texts TEXT", "a text; @file reads a file, - standard input", nargs="+"),
            flag("--lines", "each line is a text of its own"),
            given("--save PATH", "write the points to a .npy or .npz file"),
            QUIET,
            FORMAT,
        ),
    ),
    Command(
        "perplexity",
        "generating:perplexity_command",
        "how well a language model foresees a text",
        "Print the perplexity of a text: the exponential of the mean surprise of its tokens, in nats.",
        "example: ix perplexity model.gguf @page.txt",
        (
            MODEL,
            given("text TEXT", "a text; @file reads a file, - standard input"),
            QUIET,
            FORMAT,
        ),
    ),
    Command(
        "fmt",
        "formatting:format_command",
        "one canonical layout",
        "Rewrite programs in the canonical layout; comments and line ends are kept.",
        None,
        (
            given("files FILE", ".ix files, or folders of them; - reads standard input and prints", nargs="+"),
            flag("--check", "change nothing; exit 1 if some file would change"),
            FORMAT,
        ),
    ),
    Command(
        "explain",
        "explaining:explain_command",
        "the page of a code: a program that fails, why, and the mend",
        "Print the page of a code like IX403, or list all codes.",
        "example: ix explain IX403",
        (
            given("codes CODE", "like IX403, ix403 or 403 (default: list all)", nargs="*"),
            FORMAT,
        ),
    ),
    Command(
        "completion",
        "completing:completion_command",
        "what a shell needs to complete commands, options and codes",
        "Print a script that completes commands, options and codes in a shell; it starts no Python.",
        (
            'bash: eval "$(ix completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit. fish: '
            "ix completion fish > ~/.config/fish/completions/ix.fish"
        ),
        (given("shell", "which shell", choices=SHELLS),),
    ),
    Command(
        "cache",
        "caching:cache_command",
        "the folder in which emitted source is kept for the next process",
        (
            "Show where emitted source is kept, how many texts there are and how large they are; or why none is "
            "kept. IX_CACHE=0 keeps none, IX_CACHE=/a/folder keeps them there."
        ),
        None,
        (
            flag("--clear", "remove all of them"),
            FORMAT,
        ),
    ),
    Command(
        "lsp",
        "serving:lsp_command",
        "answer editors: findings as you type, facts, names, layout",
        (
            "The language server, for programs in .ix files, in Markdown pages and in Python files. An editor "
            "starts it, and speaks with it over standard input and output. It reads programs and never runs "
            "them."
        ),
        "docs/editors.md says how to set up VS Code, Neovim, Emacs, Helix and others.",
        (
            flag("--stdio", "standard input and output (the default)"),
            given("--port PORT", "listen on this local port instead", type=int),
        ),
    ),
)
