"""Worked examples as they are published, each with what usually goes wrong in it: the cause is named."""

from __future__ import annotations

import pytest

import indexical as ix

EXAMPLES = {
    "scores divided by 8, as drawn": (
        None,
        """let raw[j] = [112, 96];
        let s[j] = raw[j] / 8.0;
        let w[j] = softmax[j](s[j]);
        expect s == [14, 12];
        expect w == [0.88, 0.12];""",
    ),
    "exponentials printed to one place": (
        None,  # One in two fits as near as this would be an accident.
        """let s[j] = [2.0, 1.0, 0.1];
        let w[j] = softmax[j](s[j]);
        expect w == [0.661, 0.241, 0.098];""",
    ),
    "a norm by n - 1": (
        "reduction",
        """let x[m] = [1.0, 2.0, 4.0, 5.0];
        let mu = mean[m](x[m]);
        let var = mean[m]((x[m] - mu) ** 2);
        let y[m] = (x[m] - mu) / sqrt(var);
        expect mu == 3.00;
        expect y == [-1.095, -0.548, 0.548, 1.095];""",
    ),
    "positions from 1": (
        "position",
        """let pe[p in 0..3, k in 0..4] = if k % 2 == 0 { sin(p / 100 ** ((k - k % 2) / 2 as f64)) }
        else { cos(p / 100 ** ((k - k % 2) / 2 as f64)) };
        expect pe == [[0.841, 0.540, 0.010, 1.000], [0.909, -0.416, 0.020, 1.000], [0.141, -0.990, 0.030, 1.000]];""",
    ),
    "entropy in bits": (
        "base",
        """let p[j]=[0.5, 0.2, 0.3];
        let h = -sum[j](p[j] * log(p[j]));
        expect h == 1.485;""",
    ),
    "masked scores as 0": (
        "mask",
        """let s[i,j]=[[0.9, 0.3, 0.7], [0.2, 1.1, 0.4], [0.5, 0.8, 1.3]];
        let w[i,j] = softmax[j](s[i,j] where j <= i);
        expect w == [[0.55, 0.22, 0.22], [0.23, 0.57, 0.19], [0.22, 0.30, 0.49]];""",
    ),
    "a mask after softmax": (
        "mask",
        """let s[i,j]=[[0.9, 0.3, 0.7], [0.2, 1.1, 0.4], [0.5, 0.8, 1.3]];
        let w[i,j] = softmax[j](s[i,j] where j <= i);
        expect w == [[0.42, 0.00, 0.00], [0.21, 0.53, 0.00], [0.22, 0.30, 0.49]];""",
    ),
    "a chain of states": (
        None,
        """let x[t]=[0.5, -0.3, 0.8, 0.2, 0.6, -0.9];
        let h[0] = tanh(1.1 * x[0]);
        let h[t in 1..6] = tanh(0.7 * h[t-1] + 1.1 * x[t]);
        expect h == [0.50, 0.02, 0.71, 0.62, 0.80, -0.41];""",
    ),
    "weights cut off": (
        "cut",
        """let Q[i,d]=[[1.0, 0.2], [0.4, 0.9]];
        let K[j,d]=[[0.3, 0.8], [1.1, 0.5]];
        let V[j,e]=[[2.0, 1.0], [0.5, 3.0]];
        let s[i,j]=sum[d](Q[i,d]*K[j,d])/sqrt(size(d));
        let w[i,j]=softmax[j](s[i,j]);
        let o[i,e]=sum[j](w[i,j]*V[j,e]);
        expect s == [[0.325, 0.849], [0.594, 0.629]];
        expect w == [[0.372, 0.627], [0.491, 0.508]];""",
    ),
    "every step from printed figures": (
        "printed",
        """let Q[i,d]=[[1.0, 0.2], [0.4, 0.9]];
        let K[j,d]=[[0.3, 0.8], [1.1, 0.5]];
        let V[j,e]=[[2.0, 1.0], [0.5, 3.0]];
        let s[i,j]=sum[d](Q[i,d]*K[j,d])/sqrt(size(d));
        let w[i,j]=softmax[j](s[i,j]);
        let o[i,e]=sum[j](w[i,j]*V[j,e]);
        expect s == [[0.33, 0.85], [0.59, 0.63]];
        expect w == [[0.37, 0.63], [0.49, 0.51]];
        expect o == [[1.055, 2.260], [1.235, 2.020]];""",
    ),
    "a projection transposed": (
        "transposed",
        """let X[i,m]=[[1.0, 0.2], [0.4, 0.9]];
        let W[m,d]=[[0.2, 0.7], [0.5, -0.4]];
        let q[i,d]=sum[m](X[i,m]*W[m,d]);
        expect q == [[0.34, 0.42], [0.71, -0.16]];""",
    ),
    "no residual": (
        "left out",
        """let Q[i,d]=[[1.0, 0.2], [0.4, 0.9]];
        let K[j,d]=[[0.3, 0.8], [1.1, 0.5]];
        let V[j,e]=[[2.0, 1.0], [0.5, 3.0]];
        let s[i,j]=sum[d](Q[i,d]*K[j,d])/sqrt(size(d));
        let w[i,j]=softmax[j](s[i,j]);
        let o[i,e]=sum[j](w[i,j]*V[j,e]);
        let y[i,e] = o[i,e] + Q[i,e];
        expect y == [[1.058, 2.256], [1.237, 2.018]];""",
    ),
    "weights in percent": (
        "percent",
        """let Q[i,d]=[[1.0, 0.2], [0.4, 0.9]];
        let K[j,d]=[[0.3, 0.8], [1.1, 0.5]];
        let V[j,e]=[[2.0, 1.0], [0.5, 3.0]];
        let s[i,j]=sum[d](Q[i,d]*K[j,d])/sqrt(size(d));
        let w[i,j]=softmax[j](s[i,j]);
        let o[i,e]=sum[j](w[i,j]*V[j,e]);
        expect w == [[37.2, 62.8], [49.1, 50.9]];""",
    ),
    "a temperature twice": (
        "scale",
        """let T = 0.5;
        let z[j]=[1.0, 0.3, -0.4];
        let p[j]=softmax[j](z[j] / T);
        expect p == [0.939, 0.057, 0.003];""",
    ),
    "divided by d": (
        "scale",
        """let Q[i,d]=[[1.0, 0.2], [0.4, 0.9]];
        let K[j,d]=[[0.3, 0.8], [1.1, 0.5]];
        let V[j,e]=[[2.0, 1.0], [0.5, 3.0]];
        let s[i,j]=sum[d](Q[i,d]*K[j,d])/sqrt(size(d));
        let w[i,j]=softmax[j](s[i,j]);
        let o[i,e]=sum[j](w[i,j]*V[j,e]);
        expect s == [[0.23, 0.60], [0.42, 0.45]];
        expect w == [[0.41, 0.59], [0.49, 0.51]];""",
    ),
    "a root of 3 by hand": (
        "constant",
        """let Q[i,d]=[[1.0, 2.0, 0.5], [0.3, 1.1, 2.2]];
        let K[j,d]=[[0.7, 1.9, 1.2], [2.1, 0.4, 1.6]];
        let s[i,j]=sum[d](Q[i,d]*K[j,d])/sqrt(size(d));
        expect s == [[2.948, 2.139], [2.855, 2.653]];""",
    ),
    "a run in float32": (
        "float32",
        """let Q[i,d]=[[1.0, 0.2], [0.4, 0.9]];
        let K[j,d]=[[0.3, 0.8], [1.1, 0.5]];
        let V[j,e]=[[2.0, 1.0], [0.5, 3.0]];
        let s[i,j]=sum[d](Q[i,d]*K[j,d])/sqrt(size(d));
        let w[i,j]=softmax[j](s[i,j]);
        let o[i,e]=sum[j](w[i,j]*V[j,e]);
        expect w == [[0.37209046, 0.62790954], [0.49116206, 0.50883794]];""",
    ),
    "rows swapped": (
        "swapped",
        """let Q[i,d]=[[1.0, 0.2], [0.4, 0.9]];
        let K[j,d]=[[0.3, 0.8], [1.1, 0.5]];
        let V[j,e]=[[2.0, 1.0], [0.5, 3.0]];
        let s[i,j]=sum[d](Q[i,d]*K[j,d])/sqrt(size(d));
        let w[i,j]=softmax[j](s[i,j]);
        let o[i,e]=sum[j](w[i,j]*V[j,e]);
        expect o == [[1.24, 2.02], [1.06, 2.26]];""",
    ),
    "printed terms added": (
        None,
        """let Q[i,d]=[[1.0, 0.2], [0.4, 0.9]];
        let K[j,d]=[[0.3, 0.8], [1.1, 0.5]];
        let V[j,e]=[[2.0, 1.0], [0.5, 3.0]];
        let s[i,j]=sum[d](Q[i,d]*K[j,d])/sqrt(size(d));
        let w[i,j]=softmax[j](s[i,j]);
        let o[i,e]=sum[j](w[i,j]*V[j,e]);
        expect o == [[1.0, 2.3], [1.3, 2.0]];""",
    ),
    "dot product for cosine": (
        "scale",
        """let a[d]=[1.0, 2.0, 0.5];
        let b[d]=[0.7, 1.9, 1.2];
        let c = sum[d](a[d]*b[d]) / (sqrt(sum[d](a[d]**2)) * sqrt(sum[d](b[d]**2)));
        expect c == 5.10;""",
    ),
    "one figure of nonsense": (
        None,
        """let Q[i,d]=[[1.0, 0.2], [0.4, 0.9]];
        let K[j,d]=[[0.3, 0.8], [1.1, 0.5]];
        let V[j,e]=[[2.0, 1.0], [0.5, 3.0]];
        let s[i,j]=sum[d](Q[i,d]*K[j,d])/sqrt(size(d));
        let w[i,j]=softmax[j](s[i,j]);
        let o[i,e]=sum[j](w[i,j]*V[j,e]);
        expect w == [[0.437, 0.628], [0.491, 0.509]];""",
    ),
    "softmax over queries": (
        "axis",
        """let Q[i,d]=[[1.0, 0.2], [0.4, 0.9]];
        let K[j,d]=[[0.3, 0.8], [1.1, 0.5]];
        let V[j,e]=[[2.0, 1.0], [0.5, 3.0]];
        let s[i,j]=sum[d](Q[i,d]*K[j,d])/sqrt(size(d));
        let w[i,j]=softmax[j](s[i,j]);
        let o[i,e]=sum[j](w[i,j]*V[j,e]);
        expect w == [[0.43, 0.55], [0.57, 0.45]];
        expect o == [[1.14, 2.10], [1.36, 1.90]];""",
    ),
    "two digits swapped": (
        "digits",
        """let Q[i,d]=[[1.0, 0.2], [0.4, 0.9]];
        let K[j,d]=[[0.3, 0.8], [1.1, 0.5]];
        let V[j,e]=[[2.0, 1.0], [0.5, 3.0]];
        let s[i,j]=sum[d](Q[i,d]*K[j,d])/sqrt(size(d));
        let w[i,j]=softmax[j](s[i,j]);
        let o[i,e]=sum[j](w[i,j]*V[j,e]);
        expect o == [[1.0851, 2.2558], [1.2367, 2.0177]];""",
    ),
    "keys for values": (
        "other",
        """let Q[i,d]=[[1.0, 0.2], [0.4, 0.9]];
        let K[j,d]=[[0.3, 0.8], [1.1, 0.5]];
        let V[j,e]=[[2.0, 1.0], [0.5, 3.0]];
        let s[i,j]=sum[d](Q[i,d]*K[j,d])/sqrt(size(d));
        let w[i,j]=softmax[j](s[i,j]);
        let o[i,e]=sum[j](w[i,j]*V[j,e]);
        expect o == [[0.80, 0.61], [0.71, 0.65]];""",
    ),
    "e by hand": (
        None,
        """let s[j]=[3.1, 4.7, 1.2, 5.6];
        let w[j]=softmax[j](s[j]);
        expect w == [0.0546, 0.2708, 0.0082, 0.6664];""",
    ),
    "inputs printed rounded": (
        "given",
        """let X[i,m]=[[0.5118, 0.9505, 0.1442], [0.9486, 0.3118, 0.4233], [0.8277, 0.4092, 0.5496]];
        let W[m,d]=[[0.0276, 0.7535], [0.5381, 0.3297], [0.7884, 0.3032]];
        let q[i,d]=sum[m](X[i,m]*W[m,d]);
        expect q == [[0.6393, 0.7428], [0.5277, 0.9460], [0.6763, 0.9252]];""",
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_cause_is_named(name: str) -> None:
    kind, text = EXAMPLES[name]
    found = ix.verify(ix.compile(text))
    wrong = [cell for claim in found.claims for cell in claim.cells if cell.verdict == "fails"]
    assert {cell.cause and cell.cause.kind for cell in wrong} == ({kind} if wrong else set())
    assert bool(found) is not bool(wrong)
    assert bool(wrong) is (name not in ("scores divided by 8, as drawn", "a chain of states"))
