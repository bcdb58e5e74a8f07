"""Program → the kernels of the former emitter: which definitions one computes, and by which of them."""
