"""Commands that run language models from their files."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from .words import Usage, beside, is_screen, standard_input

if TYPE_CHECKING:
    from ..models import Model


def generate_command(options: Namespace) -> int:
    from ..models.sampling import Sampling

    Sampling(options.temperature, options.top_k, options.top_p, options.seed).check()
    if options.max_tokens < 0:
        raise Usage(f"--max-tokens {options.max_tokens}: it is 0 or more")
    if options.temperature == 0 and (options.top_k, options.top_p) != (None, None):
        raise Usage("--top-k and --top-p choose among what is drawn: give a --temperature above 0 as well, like 1")
    _check_writable(options.page, "--page")
    prompt = _text(options.prompt)
    model = _loaded(options)
    pieces = model.generate(
        prompt,
        options.max_tokens,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
        stop=options.stop,
    )
    if options.format == "text" and not options.only_new:
        print(prompt, end="", flush=True)
    page = _Page(model, options)
    started = time.perf_counter()
    first = started
    text, status = "", 0
    try:
        for piece in pieces:
            first = time.perf_counter() if not text else first
            text += piece
            if options.format == "text":
                print(piece, end="", flush=True)
            page.follow()
    except KeyboardInterrupt:
        status = 130
    ended = time.perf_counter() - page.spent
    _report(options, model, (prompt, text), first - started, ended - first)
    if status:
        print("ix: interrupted", file=sys.stderr)
    elif options.page:
        page.write()
        _tell(options, f"the heads over this text: {options.page}")
    return status


def _report(options: Namespace, model: Model, texts: tuple[str, str], reading: float, writing: float) -> None:
    """The end of what is written, and how long it took."""
    prompt, text = texts
    read = model.tokens(prompt).shape[1]
    wrote = max(len(model.written) - read, 0)
    # The first token comes with what is read before it, and with all that is compiled in the first call.
    speed = (wrote - 1) / writing if wrote > 1 and writing > 0 else None
    if options.format == "json":
        print(json.dumps({"prompt": prompt, "text": text, "read": read, "wrote": wrote, "tokens_a_second": speed}))
    else:
        print()
    rate = "" if speed is None else f", {speed:.1f} tokens a second"
    _tell(options, f"{read} tokens read in {reading:.2f} s, {wrote} written in {writing:.2f} s{rate}")


class _Page:
    """The page of the heads over a text, written again now and then while the text grows."""

    def __init__(self, model: Model, options: Namespace) -> None:
        self.model, self.options = model, options
        self.spent = 0.0
        self.due = time.perf_counter()

    def follow(self) -> None:
        """Write the page anew, unless that would take more than a tenth of the time."""
        if self.options.page and time.perf_counter() >= self.due:
            started = time.perf_counter()
            self.write()
            took = time.perf_counter() - started
            self.spent += took
            self.due = time.perf_counter() + 9 * took

    def write(self) -> None:
        sheet = self.model.heads(self.model.written)
        sheet.page(self.options.title or self.model.name).save(self.options.page)


def embed_command(options: Namespace) -> int:
    _check_writable(options.save, "--save")
    texts = [_text(text) for text in options.texts]
    if options.lines:
        texts = [line for text in texts for line in text.splitlines() if line.strip()]
    model = _loaded(options)
    found = model.embed(texts)
    if options.save:
        from .inputs import save

        save({"embedding": found.numpy()}, options.save)
        return 0
    if options.format == "json":
        print(json.dumps(found.tolist()))
        return 0
    for text, row in zip(texts, found @ found.T, strict=True):
        print("  ".join(f"{value:6.3f}" for value in row.tolist()), f" {' '.join(text.split()):.60}")
    return 0


def perplexity_command(options: Namespace) -> int:
    text = _text(options.text)
    model = _loaded(options)
    found, count = model.perplexity(text), model.tokens(text).shape[1]
    if options.format == "json":
        print(json.dumps({"perplexity": found, "tokens": count}))
    else:
        print(f"{found:.4f}")
        _tell(options, f"over {count} tokens")
    return 0


def _loaded(options: Namespace) -> Model:
    """The model, with a line on a terminal that says how far its reading is."""
    from ..models import load

    shown = is_screen(sys.stderr) and not options.quiet
    started = time.perf_counter()

    def progress(done: int, total: int) -> None:
        if shown:
            print(f"\r{options.model}: {done} of {total} weights", end="", file=sys.stderr, flush=True)

    model = load(options.model, progress)
    if shown:
        print("\r\x1b[K", end="", file=sys.stderr)
    took, count = time.perf_counter() - started, model.sizes["l"]
    _tell(options, f"{model.name}: {model.family}, {count} layer{'s' * (count != 1)}, {took:.1f} s")
    return model


def _tell(options: Namespace, line: str) -> None:
    if not options.quiet:
        print(line, file=sys.stderr, flush=True)


def _check_writable(path: str | None, option: str) -> None:
    """Say that a file cannot be written before a model is read for it."""
    place = Path(path or "file")
    if not place.parent.is_dir():
        raise Usage(f"{option} {path}: there is no folder `{place.parent}`")
    if path and place.is_dir():
        raise Usage(f"{option} {path}: it is a folder")


def _text(given: str) -> str:
    """A text as it stands, of a file where it is written `@file`, or what stands on standard input."""
    if not given.startswith("@") and given != "-":
        return given
    try:
        return standard_input() if given == "-" else Path(given[1:]).read_text(encoding="utf-8")
    except OSError as problem:
        raise Usage(f"{given}: {problem.strerror}{beside(given[1:])}") from None
    except UnicodeDecodeError as problem:
        raise Usage(f"{given}: it is no text in UTF-8, at byte {problem.start}") from None
