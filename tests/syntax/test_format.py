"""The canonical layout, golden by hand: what stands on one line, what is aligned, what breaks where."""

from __future__ import annotations

from tests.syntax.layouts import check, check_fixed, laid_out

from indexical.syntax.layout import WIDTH

# ------------------------------------------------------------------- programs


def test_the_program_of_the_language_is_a_fixed_point() -> None:
    check_fixed("""
        space batch(b), head(h), position(i, j), feature(d, e);

        input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];

        let scores[b, h, i, j]  = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d));
        let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i;
        let out[b, h, i, e]     = sum[j](weights[b, h, i, j] * V[b, h, j, e]);

        attention out(query i, key j, compare d, carry e, head h, batch b, causal);
    """)


def test_every_statement_on_one_line() -> None:
    check_fixed(r"""
        use std::norms::{layer_norm, rms_norm};
        space position(i, j), feature(), other(k);
        input x[..r, i in 0..4, d] : f32, n : i64, e[], scale;
        let h[0, m] = start[m];

        let h[t in 1..size(t), m] = tanh(sum[n](A[m, n] * h[t - 1, n]) + x[t, m]);
        output h, x;
        attention h(query i, groups contiguous n / 2, groups interleaved 4);
        attention h(key j, rows at most 1, causal offset n + 1);
        assert size(i) == 4 && true, "say \"four\" \\";
        expect sum[j](weights[i, j]) == 1;
        expect h == [[1.0, masked], [~2.50, -3]];
    """)


def test_spaces() -> None:
    check("let a=-b**2*!c as f64+x [ i,..r , j+1 ];", "let a = -b ** 2 * !c as f64 + x[i, ..r, j + 1];\n")
    check("let  a [ i ]=0<=b<c||@ y/@ x==~ - 1 ;", "let a[i] = 0 <= b < c || @y / @x == ~-1;\n")
    check(
        "let a=sum[ j in 0 ..n-1,k in a ..= b ]( x where j<k,z=2 );",
        """
        let a = sum[j in 0..n - 1, k in a..=b](x where j < k, z = 2);
    """,
    )
    check("let a = f(b , c , )[ 0, ];", "let a = f(b, c)[0];\n")
    check("use a :: b :: { c , };", "use a::b::{c};\n")
    check("input a:f32;", "input a : f32;\n")


def test_empty_texts_and_line_ends() -> None:
    assert laid_out("") == ""
    assert laid_out(" \n\n\t") == ""
    assert laid_out("let a = 1;") == "let a = 1;\n"
    assert laid_out("\n\nlet a = 1;\r\n\r\n\r\nlet b = 2;\n\n\n") == "let a = 1;\n\nlet b = 2;\n"
    assert laid_out("let a = 1; output a; output b;") == "let a = 1;\noutput a;\noutput b;\n"


def test_functions_have_lines_of_their_own() -> None:
    check(
        "fn f ( x [ i ] , s ) -> [ i ] { let a = 1; let bc = x[i]; a + bc where i<2, z=s } fn g() { 1 }",
        """
        fn f(x[i], s) -> [i] {
            let a  = 1;
            let bc = x[i];
            a + bc where i < 2, z = s
        }
        fn g() {
            1
        }
    """,
    )


def test_blocks_and_conditionals_stand_on_one_line_if_they_fit() -> None:
    check_fixed("""
        let a = { let b = 1; let c = 2; b + c where b < c };
        output a;
        let a = if x { 1 } else if y { let z = 2; z } else { 3 };
    """)
    check("let a = if x { 1 } else { if y { 2 } else { 3 } };", "let a = if x { 1 } else if y { 2 } else { 3 };\n")
    check_fixed("let a = if x { 1 } else { if y { 2 } else { 3 } where z };\n")


# ------------------------------------------------------------------ alignment


def test_the_equals_of_consecutive_lets_are_aligned() -> None:
    check(
        "let a = 1;\nlet bcd[i] = 2;\n\nlet ef = 3;\nlet g = 4;\noutput a;\nlet hij = 5;\n// between\nlet k = 6;\n",
        """
        let a      = 1;
        let bcd[i] = 2;

        let ef = 3;
        let g  = 4;
        output a;
        let hij = 5;
        // between
        let k = 6;
        """,
    )


def test_trailing_comments_do_not_end_a_run() -> None:
    check(
        "let a = 1; // one\nlet bcd = 2; // two",
        """
        let a   = 1;  // one
        let bcd = 2;  // two
    """,
    )


def test_a_let_on_several_lines_ends_a_run() -> None:
    long = "x" * 60
    check(
        f"let a = 1; let bcd = 2; let e = {long} + {long}; let fgh = 3; let i = 4;",
        f"""
        let a   = 1;
        let bcd = 2;
        let e =
            {long}
            + {long};
        let fgh = 3;
        let i   = 4;
    """,
    )


def test_a_run_that_would_not_fit_is_not_aligned_at_all() -> None:
    fits, longer = "x" * (WIDTH - len("let abc = ;")), "x" * (WIDTH - len("let abc = ;") + 1)
    check_fixed(f"""
        let a   = {fits};
        let abc = 1;
        let b   = 2;
    """)
    check_fixed(f"""
        let a = {longer};
        let abc = 1;
        let b = 2;
    """)


def test_the_width_of_a_run_counts_its_indentation() -> None:
    fits, longer = "x" * (WIDTH - len("    let abc = ;")), "x" * (WIDTH - len("    let abc = ;") + 1)
    check_fixed(f"""
        fn f() {{
            let a   = {fits};
            let abc = 1;
            a
        }}
    """)
    check_fixed(f"""
        fn f() {{
            let a = {longer};
            let abc = 1;
            a
        }}
    """)


def test_a_let_that_fits_only_without_its_indentation_is_not_in_a_run() -> None:
    long = "x" * (WIDTH - len("let a = ;"))
    check_fixed(f"""
        fn f() {{
            let a =
                {long[:-1]};
            let bcd = 1;
            let e   = 2;
            a
        }}
    """)
    check_fixed(f"let a = {long};\n")


# ------------------------------------------------------------------- breaking


def test_what_just_fits_is_not_broken() -> None:
    fits = "let a = " + "x" * (WIDTH - 13) + " + y;\n"
    assert len(fits) == WIDTH + 1
    assert laid_out(fits) == fits
    assert laid_out(fits.replace("x +", "xx +")).count("\n") == 2


def test_a_definition_breaks_before_its_where_then_after_its_equals_then_at_its_operators() -> None:
    one, two, three = "a" * 29, "b" * 29, "c" * 29
    check(
        f"let it[i, j] = {one} * {two} where {three} <= i;",
        f"""
        let it[i, j] = {one} * {two}
            where {three} <= i;
    """,
    )
    check(
        f"let it[i, j] = {one} * {two} + {three};",
        f"""
        let it[i, j] =
            {one} * {two} + {three};
    """,
    )
    check(
        f"let it[i, j] = {one} * {two} + {three} * {one} - 1 where i < j, j < 4;",
        f"""
        let it[i, j] =
            {one} * {two}
            + {three} * {one}
            - 1
            where i < j, j < 4;
    """,
    )


def test_operators_that_hold_tighter_stand_further_to_the_right() -> None:
    one, two = "a" * 60, "b" * 60
    check(
        f"let it = c < {one} * {two} + 1 || d;",
        f"""
        let it =
            c
                < {one}
                        * {two}
                    + 1
            || d;
    """,
    )


def test_brackets_break_inside() -> None:
    one, two = "a" * 45, "b" * 45
    check(
        f"let it = {one} + sum[j, k in 0..4]({one} * {two}[k] where j < k);",
        f"""
        let it =
            {one}
            + sum[j, k in 0..4](
                {one}
                * {two}[k]
                where j < k
            );
    """,
    )
    check(
        f"let it = max({one}, {two}, {one}[i]);",
        f"""
        let it =
            max(
                {one},
                {two},
                {one}[i]
            );
    """,
    )
    check(
        f"let it = ({one} + {two}) * ({two} + {one}[{two}, {one}]);",
        f"""
        let it =
            ({one} + {two})
            * (
                {two}
                + {one}[
                    {two},
                    {one}
                ]
            );
    """,
    )


def test_arrays_break_by_rows_and_numbers_fill_their_lines() -> None:
    row = ", ".join(["0.125"] * 9)
    check(
        f"let m = [[{row}], [{row}]];",
        f"""
        let m = [
            [{row}],
            [{row}]
        ];
    """,
    )
    check(
        f"expect m == ~[[{row}], [{row}]];",
        f"""
        expect m == ~[
            [{row}],
            [{row}]
        ];
    """,
    )
    check(
        f"let m = [{row}, {row}, {row}];",
        f"""
        let m = [
            {", ".join(["0.125"] * 13)},
            {", ".join(["0.125"] * 14)}
        ];
    """,
    )


def test_branches_break_together() -> None:
    long = "x" * 50
    check(
        f"let a = if c {{ {long} }} else if d {{ let b = 1; b }} else {{ {long} where e }} where f;",
        f"""
        let a = if c {{
            {long}
        }} else if d {{
            let b = 1;
            b
        }} else {{
            {long} where e
        }}
            where f;
    """,
    )


def test_lists_break_after_commas() -> None:
    names = [letter * 30 for letter in "abcd"]
    check(
        f"output {', '.join(names)};",
        f"""
        output {names[0]},
            {names[1]},
            {names[2]},
            {names[3]};
    """,
    )
    check(
        f"use std::{{{', '.join(names)}}};",
        f"""
        use std::{{
            {names[0]},
            {names[1]},
            {names[2]},
            {names[3]}
        }};
    """,
    )
    check(
        f"fn f({', '.join(names)}) -> [i] {{ 1 }}",
        f"""
        fn f(
            {names[0]},
            {names[1]},
            {names[2]},
            {names[3]}
        ) -> [i] {{
            1
        }}
    """,
    )


def test_claims_break_before_what_is_claimed() -> None:
    long = "x" * 88
    check(
        f'assert {long} == 1 && y, "message";',
        f"""
        assert {long} == 1
            && y,
            "message";
    """,
    )
    check(
        f"expect {long} == 0.25;",
        f"""
        expect {long}
            == 0.25;
    """,
    )
