"""Build the documentation: `python docs/site/build.py` writes it to build/site, to be opened from the disk."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the documentation as a site that needs no server.")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build" / "site", help="a folder (build/site)")
    options = parser.parse_args()
    try:
        from sphinx.cmd.build import main as build
    except ImportError:
        print("The site is built with Sphinx: python -m pip install -c constraints.txt -e '.[docs]'", file=sys.stderr)
        return 2
    # A link that leads nowhere, or a page that cannot be read, is an error.
    words = ["-W", "--keep-going", "-q", "-b", "html", "-c", str(ROOT / "docs/site"), str(ROOT), str(options.output)]
    status = build(words)
    if status == 0:
        print(f"open {options.output / 'index.html'}")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
