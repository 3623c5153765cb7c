"""The inventory of queues: their files with their sizes and the numbers of their operations. Queues have no consumers.

What is dead or temporary is not among the files, and what is removed while we look is left out.
"""

from __future__ import annotations

from ...core.splitting import take_inventory as take

__all__ = ["take"]
