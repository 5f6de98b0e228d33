"""The planner: logical plan, rewrite rules, lowering to pipelines and stages."""

from __future__ import annotations
