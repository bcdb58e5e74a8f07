"""`python -m indexical` is the command `ix`."""

from __future__ import annotations

from .cli import main

raise SystemExit(main())
