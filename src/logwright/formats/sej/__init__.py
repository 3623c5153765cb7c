"""sej: segmented message journals."""

from .journal import Recovery, recover
from .layout import NO_TIMESTAMP
from .reader import Reader
from .records import NOW, Message
from .scanner import Scanner
from .shard import ShardedReader
from .writer import Writer

__all__ = ["NOW", "NO_TIMESTAMP", "Message", "Reader", "Recovery", "Scanner", "ShardedReader", "Writer", "recover"]
