"""Benchmarks: each runs as ``python -m benchmarks.NAME [--quick] [--json PATH] [--data DIR]``."""

from __future__ import annotations
