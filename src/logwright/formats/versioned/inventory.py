"""The inventory of stores: their files with their sizes and the numbers of their entries. Stores have no consumers.

What is temporary is not among the files, and what is removed while we look is left out.
"""

from __future__ import annotations

from ...core.splitting import take_inventory as take

__all__ = ["take"]
