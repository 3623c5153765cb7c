"""The state that records describe: segments, recovery, and the journal for asyncio."""
