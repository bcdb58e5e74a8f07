import indexical as ix

twice = ix.compile("""
input x[i];
let y[i] = 2 * x[i];
""")


@ix.program
def attention(Q: "i d", K: "j d", V: "j e", *, window: int = 256):
    """
    let w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d])) where i - window < j <= i;
    """


def other():
    """Words of no program: let x = 1."""
