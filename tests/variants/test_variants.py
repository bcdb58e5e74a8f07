"""Every variant of the catalogue: right, its gradient too; silent, canonical, on one screen; and told of as it is."""

from __future__ import annotations

import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.variants import catalogue, roster  # noqa: E402
from tests.variants.heard import Cost  # noqa: E402

import indexical as ix  # noqa: E402
from indexical.cli import main  # noqa: E402
from indexical.facts.view import View  # noqa: E402
from indexical.ir import nodes as ir  # noqa: E402
from indexical.ir import whole  # noqa: E402

pytestmark = pytest.mark.sampled(8)

SCREEN = 32


@pytest.fixture(scope="module", params=roster.NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """A variant. All tests of one stand together, and share what was compiled."""
    return str(request.param)


@pytest.fixture(scope="module")
def page() -> str:
    return catalogue.PAGE.read_text("utf-8")


def test_variant_agrees_with_a_plain_implementation(name: str) -> None:
    given = roster.arrays(name)
    wanted = roster.plain(name)(**given)
    found = roster.compiled(name)(**given)
    assert found.shape == wanted.shape
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)
    real = [x for x in given.values() if x.requires_grad]
    finite = torch.isfinite(wanted)
    arriving = torch.randn(wanted.shape, dtype=wanted.dtype, generator=torch.Generator().manual_seed(1))
    ours = torch.autograd.grad((found[finite] * arriving[finite]).sum(), real)
    theirs = torch.autograd.grad((wanted[finite] * arriving[finite]).sum(), real)
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.any(other != 0), "an input that nothing depends on tests nothing"
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-10)


def test_variant_reads_well(name: str) -> None:
    file = roster.ROOT / "examples" / "variants" / f"{name}.ix"
    text = file.read_text("utf-8")
    assert [str(found) for found in roster.compiled(name).diagnostics if found.severity != "note"] == []
    assert "allow(" not in text
    assert len(text.splitlines()) <= SCREEN
    assert main(["fmt", "--check", str(file)]) == 0
    about = catalogue.header(name)
    assert re.search(r"\((201[4-9]|202\d)\)\. ", about.source)
    assert about.differs.endswith(".")
    assert len(about.differs) <= 160


def test_page_tells_of_the_variant(name: str, page: str) -> None:
    """Its relation, who hears whom, and the plan: kernels, cost and memory."""
    assert f"\n{catalogue.row(name)}\n" in page, "python -m tests.variants.catalogue writes the page anew"
    assert f"\n{catalogue.section(name)}" in page, "python -m tests.variants.catalogue writes the page anew"


def test_page_tells_of_all_variants_in_order(page: str) -> None:
    families = [catalogue.names_of(family) for family in catalogue.FAMILIES]
    assert sorted(name for names in families for name in names) == roster.NAMES
    titles = [catalogue.header(name).title for names in families for name in names]
    assert len(set(titles)) == len(titles)
    assert re.findall(r"^### (.*)$", page, re.MULTILINE) == titles
    assert page.startswith(catalogue.INTRODUCTION)


def test_coordinates_of_a_variant_differ_in_size() -> None:
    """Else one could stand for another unseen; those that index one axis together cannot differ."""
    tied = {"bigbird", "graph", "pair_bias", "memory_compressed"}
    for name in roster.NAMES:
        sizes = roster.sizes_of(name)
        assert (name in tied) != (len(set(sizes.values())) == len(sizes)), name


PAIRS = """input Q[i, d], K[j, d], V[j, e];
let scores[i, j] = sum[d](Q[i, d] * K[j, d]);
let weights[i, j] = softmax[j](scores[i, j] where GUARD);
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
"""


GUARDS = ["j <= i", "j <= i && i - j < 3", "i / 4 == j / 4", "any[k in 0..9](i - j == 2 ** k)"]


@pytest.mark.parametrize("guard", GUARDS)
def test_cost_is_that_of_the_pairs_that_are_heard(guard: str) -> None:
    def sizes(positions: int) -> whole.Lookup:
        def size(leaf: ir.Size | ir.Read) -> int:
            assert isinstance(leaf, ir.Size)
            return {"i": positions, "j": positions, "d": 2, "e": 3}[leaf.coordinate.name]

        return size

    cost = Cost(View(ix.compile(PAIRS.replace("GUARD", guard)).ir), sizes)
    asks, answers = np.ogrid[:1024, :1024]
    heard = {
        "j <= i": answers <= asks,
        "j <= i && i - j < 3": (answers <= asks) & (asks - answers < 3),
        "i / 4 == j / 4": asks // 4 == answers // 4,
    }.get(guard, np.isin(asks - answers, 2 ** np.arange(9)))
    # Two features to compare, three to carry, and the softmax: a sum and a quotient.
    assert cost.at(1024) == heard.sum() * (2 + 3 + 2)
