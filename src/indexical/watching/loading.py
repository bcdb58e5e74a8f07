"""Models from a folder or a file on this disk. Nothing is fetched unless that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..diagnostics import CallError, Diagnostic


def load(place: str, download: bool) -> tuple[Any, Any]:
    """A model of Hugging Face's and its tokenizer, from a folder, a GGUF file, or a name that is in the cache."""
    try:
        from transformers import AutoModel, AutoTokenizer
    except ImportError:
        help = "pip install 'indexical[models]'"
        raise CallError(
            [Diagnostic("IX509", "models are read by `transformers`, which is not here", help=help)]
        ) from None
    from transformers.utils import logging

    file = Path(place)
    source, named = (str(file.parent), {"gguf_file": file.name}) if file.suffix == ".gguf" else (place, {})
    was_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=not download, **named)
        model = AutoModel.from_pretrained(source, local_files_only=not download, **named)
    except (OSError, ValueError, ImportError, KeyError) as problem:
        if not download and not file.exists():
            message = f"`{place}` is no file or folder here, and no model of that name is in the cache"
            help = "give a folder with a model, or allow a download with --download"
            raise CallError([Diagnostic("IX515", message, help=help)]) from None
        first = next(iter(str(problem).splitlines()), type(problem).__name__)
        raise CallError([Diagnostic("IX515", f"`{place}` cannot be loaded: {first}")]) from None
    finally:
        if was_shown:
            logging.enable_progress_bar()
    return model.eval(), tokenizer
