"""Backends behind the protocol of semops.engine.backend."""

from __future__ import annotations
