"""The arithmetic of the page is that of the program: every cell of many programs, computed again in the browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.laws.programs import random_case
from tests.variants import roster

import indexical as ix
from indexical.diagnostics import CallError
from indexical.pages import gather
from indexical.run.samples import random_arrays
from indexical.views.document import document_json
from indexical.views.webpage import script

ROOT = Path(__file__).resolve().parents[2]

AGAIN = """(page) => {
  const relation = new Relation(page);
  const wrong = [];
  let cells = 0;
  for (const [name, table] of relation.tensors) {
    if (page.relation[name] === undefined) continue;
    for (let offset = 0; offset < table.size; offset += 1) {
      const place = placeOf(table.shape, offset);
      const claim = Number(table.values[offset]);
      const found = relation.clauseAt(name, place);
      // A definition inside a step has no points before the first step.
      if (found === null) { if (!table.tensor.hidden) wrong.push(`${label(name, place)} has no clause`); continue; }
      const { clause, point } = found;
      if (clause.guard !== null && !relation.value(clause.guard, point)) {
        if (!table.mask(offset) && page.marked) wrong.push(`${label(name, place)} is masked here`);
        continue;
      }
      if (Number.isNaN(claim) && table.tensor.exact !== undefined) continue;
      cells += 1;
      const value = Number(relation.value(clause.body, point));
      const near = Object.is(value, claim) || value === claim || Math.abs(value - claim) <= page.near * Math.max(1, Math.abs(claim));
      if (!near) wrong.push(`${label(name, place)} = ${claim}, and here ${value}`);
      const { scans } = relation.trace(name, place);
      const [scan] = scans;
      if (clause.body[0] === "reduce" && !(Number.isNaN(value) || scan.value === value || Math.abs(Number(scan.value) - value) <= 1e-9)) wrong.push(`${label(name, place)}: its scan says ${scan.value}`);
      new Writer(relation, (other, at) => String(relation.tensors.get(other).at(at))).line(clause.body, point);
    }
  }
  // All definitions from the inputs alone, as after a change: the same numbers, and the same cells are masked.
  const before = new Map([...relation.tensors].map(([name, table]) => [name, [[...table.values], [...table.values].map((_, offset) => table.mask(offset))]]));
  const names = page.steps.map((step) => step.name);
  for (const name of names) relation.tensors.get(name).values = relation.tensors.get(name).values.map(() => 0);
  const problem = relation.again(names, 60_000);
  if (problem !== "") wrong.push(problem);
  for (const name of names) {
    const table = relation.tensors.get(name);
    const [values, masked] = before.get(name);
    if (table.tensor.exact !== undefined && values.some((value) => Number.isNaN(Number(value)))) continue;
    for (let offset = 0; offset < table.size; offset += 1) {
      const [value, claim] = [Number(table.values[offset]), Number(values[offset])];
      const place = placeOf(table.shape, offset);
      if (page.marked && table.mask(offset) !== masked[offset]) wrong.push(`${label(name, place)}: again, masked is ${table.mask(offset)}`);
      if (table.mask(offset) || masked[offset]) continue;
      if (!(Object.is(value, claim) || value === claim || Math.abs(value - claim) <= 10 * page.near * Math.max(1, Math.abs(claim)))) wrong.push(`${label(name, place)} = ${claim}, and again ${value}`);
    }
  }
  // And from the text alone, as after a change of it: the same tensors, numbers, masks, steps and lines.
  const made = page.text === null ? null : remade(page, page.text, { ...STANDARD, ...page.modules });
  for (const tensor of made === null ? [] : page.tensors) {
    const { name } = tensor;
    const mine = made.tensors.find((found) => found.name === name);
    if (mine === undefined) { wrong.push(`${name} is not made of the text`); continue; }
    for (const part of ["shape", "coordinates", "kind", "role", "hidden"]) if (String(mine[part]) !== String(tensor[part])) wrong.push(`${name}: its ${part} is ${tensor[part]}, and of the text ${mine[part]}`);
    if (page.relation[name] === undefined || wrong.length > 0) continue;
    const [table, removed] = [new Table(tensor), new Set(mine.masked)];
    for (let offset = 0; offset < table.size; offset += 1) {
      const [value, claim] = [Number(mine.values[offset]), Number(table.values[offset])];
      if (page.marked && removed.has(offset) !== table.mask(offset)) wrong.push(`${name} ${offset}: of the text, masked is ${removed.has(offset)}`);
      if (removed.has(offset) || table.mask(offset) || (Number.isNaN(claim) && tensor.exact !== undefined)) continue;
      if (!(Object.is(value, claim) || value === claim || Math.abs(value - claim) <= 10 * page.near * Math.max(1, Math.abs(claim)))) wrong.push(`${name} ${offset} = ${claim}, and of the text ${value}`);
    }
  }
  const told = (of) => of.steps.map((step) => `${step.name} in ${step.inside} at ${step.lines}`).sort().join("; ");
  if (made !== null && told(made) !== told(page)) wrong.push(`steps: ${told(page)}, and of the text ${told(made)}`);
  if (made !== null && JSON.stringify(made.lines) !== JSON.stringify(page.lines)) wrong.push("the lines of the text");
  if (made !== null && String(made.outputs) !== String(page.outputs)) wrong.push(`outputs: ${page.outputs}, and of the text ${made.outputs}`);
  return { wrong, cells };
}"""
# What reads a text, beside the evaluator.
SCRIPTS = "dom evaluate again written tokens parse expressions claims lower elaborate given".split()
SCRIPTS += "reads define inline lift spelled patterns words remake".split()


@pytest.fixture(scope="module")
def evaluator(browser: Any) -> Iterator[Any]:
    """A tab with the evaluator and no page."""
    tab = browser.new_page()
    tab.set_content("<!doctype html><meta charset=utf-8>")
    around = "class Page {}\nconst longestWork = 60_000;\n"
    tab.add_script_tag(content=around + "\n".join(script(f"{name}.js") for name in SCRIPTS))
    yield tab
    tab.close()


def again(tab: Any, program: ix.Program, arrays: dict[str, Any], near: float = 1e-9) -> int:
    """How many cells were computed again; none of them differs."""
    shown = gather(program, (), arrays, None)
    text = program.ir.source.text
    # Derivatives are taken by the compiler alone.
    kept = {"text": None if "@" in text else text, "near": near, "marked": shown.evaluated is not None}
    page = {**document_json(shown), **kept}
    found = tab.evaluate(f"(text) => ({AGAIN})(JSON.parse(text))", json.dumps(page))
    assert found["wrong"][:5] == [], program.ir.source.text
    return int(found["cells"])


EXAMPLES = sorted((ROOT / "examples").glob("*.ix"))
SIZES = {"rotary": {"d": 4}, "grouped_query": {"h": 4, "g": 2}}
ROUNDED = {"half_precision": 2e-2}  # The page computes with 64 bits what the program rounds to 16.


@pytest.mark.sampled(4)
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_examples(evaluator: Any, file: Path) -> None:
    program = ix.compile(file)
    sample, _ = random_arrays(program.ir, {}, SIZES.get(file.stem, {}), 1)
    assert again(evaluator, program, sample.arrays, ROUNDED.get(file.stem, 1e-6)) > 0


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", roster.NAMES)
def test_the_catalogue(evaluator: Any, name: str) -> None:
    arrays = {key: array.detach().numpy() for key, array in roster.arrays(name).items()}
    assert again(evaluator, roster.compiled(name), arrays, 1e-5) > 0


PROGRAMS = {
    "a recurrence with several clauses": (
        "input x[t]; let f[0] = 1; let f[1] = x[0]; let f[t in 2..size(t)] = f[t - 1] + 2 * f[t - 2] - x[t];",
        {"x": [1, 2, 3, 4, 5]},
    ),
    "a definition inside a step": (
        "input x[j]; let h[0, j] = x[j];\n"
        "let h[e in 1..3, j] = h[e - 1, j] * { let l[i in 0..2] = h[e - 1, j]; l[0] + 1 };",
        {"x": [1, 2, 3]},
    ),
    "ranges that depend": (
        "input x[i]; let y[i] = sum[k in 0..=i](x[k] * k); let z[i] = max[k in i..size(i)](x[k]);",
        {"x": [3, -1, 4, 1]},
    ),
    "a running sum": (
        "input x[i]; let y[i] = cumsum[i](x[i]); let z[i] = cumsum[i](x[i]) where x[i] > 1;",
        {"x": [3, -1, 4, 1]},
    ),
    "running products and maxima": (
        "input x[i]; let y[i] = cumprod[i](x[i]); let z[i] = cummax[i](x[i]) where x[i] > 1;\n"
        "let s = sum[i](cumprod[i](x[i] + 1) where i > 0); let w[i in 1..3] = cummax[i](x[i] * i);\n"
        "let v[i] = cumprod[i](0.5 * i) + w[i];",
        {"x": [3, -1, 4, 1]},
    ),
    "logarithms of weights": (
        "input x[i, j]; let y[i, j] = log_softmax[j](x[i, j]); let z[i, j] = log_softmax[j](x[i, j]) where j <= i;\n"
        "let w[i, j] = exp(z[i, j]);",
        {"x": [[1, 2], [0, 1]]},
    ),
    "places": (
        "input x[i, j]; let a[i] = argmax[j](x[i, j]); let b[i] = argmin[j](x[i, j]); let c[i] = x[i, a[i]];",
        {"x": [[1, 5, 5], [2, 0, 0]]},
    ),
    "ranks": (
        "input x[i, j]; let a[i, j] = rank[j](x[i, j]); let b[i, j] = rank[j](x[i, j]) where j != i;\n"
        "let c[i] = sum[j](x[i, j] where rank[j](x[i, j]) < 2); let d[i, j] = a[i, j] * x[i, j];",
        {"x": [[1, 5, 5], [2, float("nan"), 3]]},
    ),
    "guards": (
        "input x[i]; let y[i, j in 0..size(i)] = x[i] * x[j] where j <= i && x[j] > 0;\n"
        "let z[i] = sum[j in 0..size(i)](y[i, j] * x[j]) where i > 0; let n[i] = -y[i, i] / 2;",
        {"x": [1, -2, 3]},
    ),
    "reading by index": (
        "input x[i], at[k]: i64; let y[k] = x[at[k]] + x[(k + 1) % size(i)];",
        {"x": [5, 6, 7], "at": np.array([2, 0])},
    ),
    "whole quotients of negative numbers": (
        "input a[i]: i64; let q[i] = a[i] / 3; let r[i] = a[i] % 3; let s[i] = a[i] / -2; let t[i] = a[i] % -2;",
        {"a": np.array([-7, -3, -1, 0, 1, 7])},
    ),
    "casts and choices": (
        "input x[i]; let w[i] = x[i] as i64; let f[i] = w[i] as f64; let c[i] = if x[i] > 0 { w[i] } else { -w[i] };\n"
        "let t[i] = x[i] > 0; let u[i] = t[i] || !(x[i] < -1); let n = sum[i](if u[i] { 1 } else { 0 });",
        {"x": [-1.5, 2.5, 0.0]},
    ),
    "means and products": (
        "input x[i]; let m = mean[i](x[i]); let p = prod[i](x[i]); let a = any[i](x[i] > 3); let b = all[i](x[i] > 0);",
        {"x": [1, 2, 4]},
    ),
    "clauses told apart by guards": (
        "input A[i, k]; let L[i, j in 0..size(i)] = A[i, j] where j == i;\n"
        "let L[i, j in 0..size(i)] = A[i, j] * 2 where j < i;",
        {"A": [[1, 2], [3, 4]]},
    ),
    "several coordinates as one": (
        "input x[y, z]; let w[y, z] = softmax[y, z](x[y, z] + y where y <= z); let m = argmax[y, z](x[y, z] * 2);",
        {"x": [[1, 5, 2], [2, 0, 3]]},
    ),
    "a definition that begins above 0": (
        "input x[t]; let step[t in 1..size(t)] = x[t] - x[t - 1];\n"
        "let far[t in 1..size(t)] = step[t] * { let c[k in 0..2] = step[t] + k; c[1] };",
        {"x": [1, 4, 9, 16]},
    ),
    "sizes that a statement finds for itself": (
        "input x[i]; let y[i] = sum[k in 0..size(i)](x[k] / size(k)) + { let z[e in 0..size(i)] = x[e] * i; z[0] };",
        {"x": [1, 2, 4]},
    ),
    "functions that give several": (
        "fn both(a[..r, i], s) -> ([..r, i], [..r]) { let m[..r] = mean[i](a[..r, i]); (a[..r, i] - m[..r] * s, m[..r]) }\n"
        "input X[b, i]; let (less, middle) = both(X, 2); let all_ = both_of(X)[0]; fn both_of(Y[b, i]) -> [b] { Y[b, 0] }",
        {"X": [[1, 2], [3, 5]]},
    ),
    "softmax inside a sum": (
        "input q[i], v[j, e]; let y[i, e] = sum[j](softmax[j](q[i] * v[j, 0]) * v[j, e]);",
        {"q": [1, 2], "v": [[1, 2], [3, 4], [0, 1]]},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("floats", [False, True], ids=["exact", "floats"])
def test_programs(evaluator: Any, name: str, floats: bool) -> None:
    text, values = PROGRAMS[name]
    arrays = {key: np.asarray(value) for key, value in values.items()}
    if floats:
        arrays = {k: v if k in ("a", "at") else v + np.float64(0.1) for k, v in arrays.items()}
    assert again(evaluator, ix.compile(text), arrays) > 0


# Where the program rounds to fewer digits than the page.
NEAR = {"float16": 2e-2, "float32": 1e-4}


@pytest.mark.sampled(0)
def test_programs_at_random(evaluator: Any) -> None:
    """Those of the laws, where they have values and these are finite."""
    cells = tried = 0
    for seed in range(40):
        case = random_case(seed)
        arrays = {name: np.asarray(array) for name, array in case.arrays.items()}
        near = max((NEAR.get(array.dtype.name, 0) for array in arrays.values()), default=0) or 1e-9
        try:
            cells += again(evaluator, ix.compile(case.text), arrays, near)
        except CallError:
            continue
        tried += 1
    assert tried >= 25
    assert cells > 400
