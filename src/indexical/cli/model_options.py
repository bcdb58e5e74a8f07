"""The options of the commands that run language models."""

from __future__ import annotations

from typing import Any

from .tools import add_format


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
    writing.add_argument("--page", metavar="PATH", help="write a page with the weights of all heads over the text")
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
