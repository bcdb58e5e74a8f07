"""The former emitter and its planner: attention, its gradients, scans, chunked recurrences, until they are operations.

`opaque.py` above is the door: no other file imports from here.
"""
