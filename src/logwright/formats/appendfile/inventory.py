"""The inventory of a journal: its files with their sizes and the numbers of their records. It has no consumers.

What is removed while we look is left out.
"""

from __future__ import annotations

from ...core.splitting import take_inventory as take

__all__ = ["take"]
