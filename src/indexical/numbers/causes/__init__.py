"""Why a figure fails: the usual explanations, tried and named."""
