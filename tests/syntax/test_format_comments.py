"""Comments and the layout: each keeps its place, or is lifted out of what it stands in."""

from __future__ import annotations

from tests.syntax.layouts import check, check_fixed


def test_comments_before_behind_and_after_statements() -> None:
    check(
        """

        // first


        // second
        let a = 1;   // allow(IX402): it is meant
        let bc = 2;


        // third
        output a;//fourth
        // last

        // of all

        """,
        """
        // first

        // second
        let a  = 1;  // allow(IX402): it is meant
        let bc = 2;

        // third
        output a;  //fourth
        // last

        // of all
        """,
    )


def test_a_trailing_comment_stays_however_long_its_line() -> None:
    comment = "// allow(IX402): " + "because " * 12 + "it is meant"
    check_fixed(f"""
        let a   = 1;  {comment}
        let bcd = sum[j](a[j]);  {comment}
    """)
    long = "x" * 60
    check(
        f"let a = {long} + {long}; {comment}",
        f"""
        let a =
            {long}
            + {long};  {comment}
    """,
    )


def test_comments_inside_a_statement_are_put_before_it() -> None:
    check(
        "let a = 1;\nlet b = // one\n  2 + /// two\n  3 // three\n;\n",
        """
        let a = 1;
        // one
        /// two
        // three
        let b = 2 + 3;
    """,
    )
    check(
        "output a;\n\n// own\nfn f( // one\n x) -> // two\n [i] { 1 }",
        """
        output a;

        // own
        // one
        // two
        fn f(x) -> [i] {
            1
        }
    """,
    )
    check(
        "output a;\n\nlet b = // one\n 2;",
        """
        output a;

        // one
        let b = 2;
    """,
    )


def test_comments_in_a_function() -> None:
    check(
        """
        fn f(x) { // opening

            // before a
            let a = x; // behind a
            let bcd = // inside b
                1;
            let e = 2;

            // before the value
            a + // inside the value
                bcd // behind the value

            // closing
        } // behind f
        """,
        """
        fn f(x) {
            // opening

            // before a
            let a = x;  // behind a
            // inside b
            let bcd = 1;
            let e   = 2;

            // before the value
            // inside the value
            a + bcd  // behind the value

            // closing
        }  // behind f
        """,
    )


def test_a_comment_opens_its_block() -> None:
    check(
        "let a = { let b = 1; // one\n b };",
        """
        let a = {
            let b = 1;  // one
            b
        };
    """,
    )
    check(
        "let a = { let b = 1; b\n // one\n };",
        """
        let a = {
            let b = 1;
            b
            // one
        };
    """,
    )
    check(
        "let a = { b where // one\n c };",
        """
        let a = {
            // one
            b where c
        };
    """,
    )
    check(
        "let a = if x { // one\n 1 } else { 2 } + 1;",
        """
        let a =
            if x {
                // one
                1
            } else {
                2
            }
            + 1;
    """,
    )
    check(
        "let a = if x { 1 } else { // one\n if y { 2 } else { 3 } };",
        """
        // one
        let a = if x { 1 } else if y { 2 } else { 3 };
    """,
    )


def test_a_file_of_comments() -> None:
    check("\n// a\n\n\n// b", "// a\n\n// b\n")
