"""Views for people: results as text."""

# The forms in which an exact number is written.
FORMS = ("structural", "canonical", "named", "spelled")
# The names by which the heads of a weights tensor can be sorted.
SORTS = ("head", "word", "entropy", "keys", "self", "previous", "first", "distance")
