"""Ten tasks that work on one queue. Confirmations that happen at the same time share one sync."""

import asyncio

from logwright.kestrel import AsyncQueue


async def work(queue: AsyncQueue, done: list[bytes]) -> None:
    async for item in queue.consume(timeout=0):  # ends when the queue is empty
        done.append(item.data)


async def main() -> None:
    async with AsyncQueue.open("queues", "jobs", sync="always") as queue:
        await queue.put_many([b"job %d" % number for number in range(100)])
        done: list[bytes] = []
        await asyncio.gather(*(work(queue, done) for _ in range(10)))
        print(len(done), "jobs done,", len(queue), "left")


asyncio.run(main())
