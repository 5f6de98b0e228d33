"""Running a physical plan: tuples, prompts, the feeder and the ordered result stream."""

from __future__ import annotations
