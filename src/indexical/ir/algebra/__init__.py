"""The one normal form of real expressions: sums of products, in which every spelling of one value is one form."""
