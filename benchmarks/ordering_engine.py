"""A burst on the real engine under each policy: latencies in engine steps, and what predicting costs."""

from __future__ import annotations


def run(args):
    return [], {}
