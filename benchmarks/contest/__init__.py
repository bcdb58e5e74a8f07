"""Attention in named coordinates beside its peers: programs, peers, clocks, and the table of targets."""
