"""A program as a PyTorch module: some of its inputs are parameters, the others are arguments."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from inspect import Signature
from typing import Any

from .api import Program, compile
from .checker.names import suggest
from .diagnostics import CallError, Diagnostic
from .run.amounts import limit_of
from .run.tensors import load_torch
from .source import Span

try:
    import torch
    from torch import Tensor
except ImportError:
    load_torch()  # which says how to install it


class Module(torch.nn.Module):
    """A program with parameters. The forward pass takes its other inputs, in order or by name.

    A parameter is given as a tensor, or as a shape: then it starts out normal, divided by the root of the
    product of all its sizes but the last. A `torch.nn.Buffer` is kept in the state dict and not trained. `memory` is
    the budget of every call: the most that it and its way back take beside inputs and parameters.
    """

    def __init__(
        self,
        program: Program | str | os.PathLike[str],
        parameters: Mapping[str, Tensor | tuple[int, ...]],
        outputs: str | Iterable[str] | None = None,
        memory: str | int | None = None,
    ) -> None:
        super().__init__()
        self.memory = memory if memory is None else limit_of(memory)
        self.program = program if isinstance(program, Program) else compile(program)
        self.outputs = outputs if outputs is None or isinstance(outputs, str) else tuple(outputs)
        given: Any = parameters  # Whatever was passed, not only what may be.
        if not isinstance(given, Mapping):
            message = f"parameters are given by name, and not as {type(given).__name__}"
            mend = 'pass a mapping of tensors or shapes: `{"W": (64, 64)}`'
            raise CallError([Diagnostic("IX515", message, help=mend)])
        for name, value in given.items():
            if name not in self.program.inputs:
                help, _ = suggest(name, self.program.inputs, Span(self.program.ir.source, 0, 0))
                taken = ", ".join(self.program.inputs)
                message = f"no input is called `{name}`"
                raise CallError([Diagnostic("IX501", message, help=help or f"this program takes {taken}")])
            if hasattr(self, name) or name in ("given", "asked"):
                message = f"a parameter cannot be called `{name}`: a module has something of that name"
                raise CallError([Diagnostic("IX501", message, help="call the input something else")])
            setattr(self, name, _parameter(name, value))
        self.given = tuple(name for name in self.program.inputs if name in parameters)
        self.asked = tuple(name for name in self.program.inputs if name not in parameters)

    def forward(
        self, *arrays: Any, outputs: str | Iterable[str] | None = None, isolate: bool = False, **named: Any
    ) -> Any:
        """Run the program, with the parameters in their places. `outputs` asks for other definitions, this once."""
        if len(arrays) > len(self.asked):
            message = f"{len(arrays)} arrays for {len(self.asked)} inputs that are no parameters"
            help = f"this module takes {', '.join(self.asked) or 'no inputs'}"
            raise CallError([Diagnostic("IX501", message, help=help)])
        found = dict(zip(self.asked, arrays, strict=False))
        own = [name for name in named if name in self.given]
        if own:
            raise CallError([Diagnostic("IX501", f"`{own[0]}` is a parameter of this module, and no argument")])
        twice = [name for name in named if name in found]
        if twice:
            raise CallError([Diagnostic("IX501", f"`{twice[0]}` is given twice, by place and by name")])
        found.update(named)
        found.update({name: getattr(self, name) for name in self.given})
        asked = self.outputs if outputs is None else outputs
        limit: dict[str, Any] = {} if self.memory is None else {"memory": self.memory}
        by_place = []
        if found.keys() == set(self.program.inputs):
            by_place = [found.pop(name) for name in self.program.by_place]
            if asked is None and not isolate:
                return self.program(*by_place, **limit, **found)
        return self.program(*by_place, outputs=asked, isolate=isolate, **limit, **found)

    @property
    def __signature__(self) -> Signature:
        """The parameters of a call: the inputs that are no parameters, and the options of `forward`."""
        whole = self.program.__signature__
        left_out = {*self.given, "backend", "recompute", "memory"}
        return whole.replace(parameters=[each for name, each in whole.parameters.items() if name not in left_out])

    def extra_repr(self) -> str:
        outputs = self.program.outputs if self.outputs is None else self.outputs
        shown = outputs if isinstance(outputs, str) else ", ".join(outputs)
        return f"{', '.join(self.asked)} -> {shown}"


def _parameter(name: str, value: Any) -> Tensor:
    """The parameter for an input: a tensor as it is, or random numbers of a shape."""
    if isinstance(value, torch.nn.Parameter | torch.nn.Buffer):
        return value
    if isinstance(value, Tensor):
        return torch.nn.Parameter(value) if value.is_floating_point() else torch.nn.Buffer(value)
    try:
        shape = torch.Size(value)
    except TypeError:
        shape = None
    if shape is None or min(shape, default=0) < 0:
        message = f"the parameter `{name}` is a tensor, or a shape like `(64, 64)`, and not {value!r:.40}"
        raise CallError([Diagnostic("IX515", message)])
    fan = 1
    for size in shape[:-1]:
        fan *= size
    return torch.nn.Parameter(torch.randn(shape) / max(1, fan) ** 0.5)
