"""Decoding, derived: a program along positions, as a pass over those that are given and a step for further ones."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import signature
from typing import Any, Literal

from .api import Program
from .bound import laid_out_for_rows, with_floats
from .calculus import Told, known_program
from .checker.names import suggest
from .decoder import Decoder, error, stepping_of
from .diagnostics import CallError, Diagnostic
from .run.paged import check_pages
from .run.rooms import check_capacity
from .source import Span
from .transform.causality import split
from .transform.paged import Unpaged
from .transform.positions import Unsplit


def incremental(
    program: Told,
    /,
    along: str,
    outputs: str | Iterable[str] | None = None,
    keep: Literal["bf16", "i8"] | None = None,
    capacity: int | None = None,
    graph: bool = True,
    pages: int | None = None,
    pool: int | None = None,
    **weights: Any,
) -> Decoder:
    """The program, one position after another: `prefill` takes those that are there, `step` one more or a few.

    `along` is a coordinate of the positions, or their space. `weights` are inputs that stay what they are, by name:
    they need not be given in every call. One that has positions, such as a table of embeddings, is there for all of
    them; one that is a float of Python is from then on a number in the text. Matrices in which what is summed does not
    come last are copied once, so that it does. The parameters of an `ix.nn.Module` are its weights.

    `keep="bf16"` holds what is kept of each position in 16 bits, `keep="i8"` in 8 bits with a factor for each row. Then
    a step converts all that it reads.

    With a `capacity` there is room for so many positions from the first call on: the arrays of a step never change
    their shapes or places, how many positions are there is data on the device, and sequences of different lengths are
    computed in one call. On a GPU the step is captured in a CUDA graph and replayed, unless `graph` is False.

    `pages=16` holds what is kept of all positions in pages of 16 rows, which all states share and a table names. With
    `pool=4096` there are so many pages and no more.

    Raises `ix.Error` where a position depends on one after it, with the read and the two positions.
    """
    module: Any = program
    if isinstance(getattr(module, "program", None), Program):
        weights = {name: getattr(module, name) for name in module.given} | weights
        outputs = module.outputs if outputs is None else outputs
        program = module.program
    known = known_program(program)
    for name in weights:
        if name not in known.inputs:
            close, _ = suggest(name, (*known.inputs, *signature(incremental).parameters), Span(known.ir.source, 0, 0))
            taken = f"this program takes {', '.join(known.inputs)}"
            raise error("IX501", f"no input is called `{name}`", close or taken)
    if keep not in (None, "bf16", "i8"):
        raise error("IX515", f"what is kept cannot be held as `{keep}`", "`bf16` and `i8` can be chosen")
    check_capacity(capacity)
    check_pages(pages, pool)
    known, weights = with_floats(known, weights)
    wanted = known.wanted(outputs)
    laid, layouts = laid_out_for_rows(known, weights)
    try:
        found = split(laid._program, along, weights.keys(), wanted)
        stepping = stepping_of(found, wanted, keep, capacity, weights, pages)
    except Unsplit as problem:
        raise CallError([Diagnostic("IX518", str(problem), problem.labels, help=problem.help)]) from None
    except Unpaged as problem:
        raise error("IX515", str(problem), "leave out `pages=`") from None
    alone = isinstance(outputs, str) or (outputs is None and len(wanted) == 1)
    return Decoder(known, along, found, stepping, wanted, alone, weights, laid, layouts, keep, capacity, graph, pool)
