"""The inventory of journals: each is one file, with its size and the numbers of its transactions; no consumers."""

from __future__ import annotations

from ...core.splitting import take_inventory as take

__all__ = ["take"]
