"""The one table of every diagnostic code.

A code is stable: its number never changes meaning. Each has a page in the docs of the
same name, with a program that fails, what is printed, why, and the mend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .records import dataclass

if TYPE_CHECKING:
    from pathlib import Path

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Code:
    """The title and the severity of a code."""

    title: str
    severity: Severity


def _error(title: str) -> Code:
    return Code(title, "error")


def _warning(title: str) -> Code:
    return Code(title, "warning")


def _note(title: str) -> Code:
    return Code(title, "note")


CODES: dict[str, Code] = {
    # Text.
    "IX101": _error("something else was expected here"),
    "IX102": _error("a bracket is not closed, or closes nothing"),
    "IX103": _error("a character that means nothing here"),
    "IX104": _error("a number that cannot be read"),
    "IX105": _error("a text that is not closed"),
    "IX106": _error("nested too deeply"),
    "IX107": _error("an array literal that is not rectangular"),
    "IX108": _error("a file that cannot be read"),
    "IX109": _error("a Python function that is no program"),
    # Names.
    "IX201": _error("a name that nothing defines"),
    "IX202": _error("a name defined twice"),
    "IX203": _error("a name the language keeps for itself"),
    "IX204": _warning("a name that hides another"),
    "IX205": _error("the wrong number of indices"),
    "IX206": _error("the wrong number of arguments"),
    "IX207": _error("a module or a name in it that does not exist"),
    "IX208": _error("a function that calls itself"),
    "IX209": _error("a whole tensor where one number is needed, or the reverse"),
    "IX210": _error("a normaliser over a coordinate that does not survive"),
    "IX211": _error("a coordinate bound twice"),
    "IX212": _error("a guard that could attach to several reductions"),
    "IX213": _error("`..` stands for different coordinates"),
    "IX214": _warning("an allow that silences nothing"),
    "IX215": _error("not available yet"),
    "IX216": _error("the program grows too large when its functions are inlined"),
    "IX217": _error("nothing to compute"),
    "IX218": _error("a derivative that is not there"),
    "IX219": _error("figures that cannot be read as printed"),
    "IX220": _note("a name that hides a word of the library"),
    # Sizes, spaces, bounds.
    "IX301": _error("a coordinate without a size"),
    "IX302": _error("a range that cannot be used"),
    "IX303": _error("coordinates of different spaces on one axis"),
    "IX304": _error("sizes that disagree"),
    "IX305": _error("an index out of bounds"),
    "IX306": _error("clauses that leave a gap"),
    "IX307": _error("clauses that overlap"),
    "IX308": _error("a rule that reads what is not there yet"),
    "IX309": _error("an absent point is read"),
    "IX310": _error("a reduction over no points"),
    # Kinds.
    "IX351": _error("the wrong kind of value"),
    "IX352": _warning("a whole quotient meets a real"),
    # Meaning: shape-compatible mistakes.
    "IX402": _warning("normalised over one coordinate, gathered over another"),
    "IX403": _warning("a value that is not read at the key"),
    "IX404": _warning("values of another head than the weights"),
    "IX405": _warning("weights guarded after they were normalised"),
    "IX406": _warning("no feature is compared"),
    "IX407": _warning("heads split or packed in different orders"),
    "IX408": _warning("a scale from the wrong size"),
    "IX409": _warning("a scale applied twice"),
    "IX410": _note("scores that are not scaled"),
    "IX411": _warning("a mask written as a large negative number"),
    "IX412": _warning("a reduction over what nothing mentions"),
    "IX413": _warning("an input or definition that no output needs"),
    "IX414": _note("exponentials summed without a shift"),
    "IX415": _note("a guard that may leave nobody to listen to"),
    "IX416": _warning("rotary positions that do not meet"),
    "IX417": _warning("an offset in the mask alone, or in the positions alone"),
    "IX418": _warning("a bias that grows with the distance"),
    "IX419": _note("digits that are lost"),
    "IX430": _note("scores divided by a size, and not by its root"),
    "IX431": _warning("a mask on keys that is turned round"),
    "IX432": _warning("a mask on queries that is meant for keys"),
    "IX433": _warning("a table of distances read from both ends"),
    "IX434": _warning("a bias added to weights"),
    "IX435": _warning("a sink that is masked, scaled or carried home"),
    # Contracts.
    "IX420": _error("a contract for what is no attention"),
    "IX421": _error("a role that the relation does not have"),
    "IX422": _error("query and key swapped in the scores"),
    "IX423": _error("a causal contract that does not hold"),
    "IX424": _error("a residual that is not added at the query"),
    "IX425": _error("grouped heads read in another order than the contract says"),
    "IX426": _error("weights that sum to something else than the contract says"),
    # Calls.
    "IX501": _error("arguments that do not match the inputs"),
    "IX502": _error("an array of the wrong rank"),
    "IX503": _error("an array of the wrong dtype"),
    "IX504": _error("something that is not an array"),
    "IX505": _error("a whole number that cannot be computed"),
    "IX506": _error("an assertion that does not hold"),
    "IX507": _error("too large to evaluate"),
    "IX508": _error("an output that does not exist"),
    "IX509": _error("a backend that is not there"),
    "IX510": _error("arrays on different devices"),
    "IX511": _error("an input that is no exact number"),
    "IX512": _error("a symbol where a value is needed"),
    "IX513": _error("an equality that is not decided"),
    "IX514": _error("an exact value that grows too large"),
    "IX515": _error("a question that cannot be asked"),
    "IX516": _error("a figure on a page that does not hold"),
    "IX517": _error("a comment on a page that names nothing"),
    "IX518": _error("positions that cannot be taken one after another"),
    "IX521": _error("a machine that does not answer"),
    "IX522": _error("machines that do not agree about a call"),
    "IX535": _error("a budget of memory that cannot be read"),
    "IX536": _error("a budget of memory that cannot be kept"),
    "IX540": _error("a model that cannot be read"),
    "IX541": _error("weights that do not fit the program"),
    # Reading code of others.
    "IX601": _error("a callable that cannot be run"),
    "IX602": _error("an operation that cannot be read"),
    "IX603": _error("a relation that is not what the callable computes"),
    "IX604": _warning("a view that cuts across positions and heads"),
    # Indexical itself.
    "IX901": _error("a mistake in Indexical"),
}


def page_file(code: str) -> Path:
    """The file with the page of a code: it is installed with the package, and in a copy of the repository in `docs`."""
    from pathlib import Path

    here = Path(__file__).resolve().parent
    installed = here / "explained" / f"{code}.md"
    return installed if installed.is_file() else here.parents[1] / "docs" / "codes" / f"{code}.md"


def page_of(code: str) -> str:
    """The address of the page of a code."""
    return page_file(code).as_uri()
