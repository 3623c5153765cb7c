"""A queue with retries: a mail that cannot be sent three times is parked, and does not block the others."""

from logwright.kestrel import Queue


def send(address: bytes) -> None:
    if address == b"nobody":
        raise ValueError("no such address")
    print("sent to", address.decode())


with Queue("queues", "mail", sync="always", max_attempts=3) as queue:
    queue.put_many([b"ada", b"nobody", b"chen"])
    while len(queue):
        try:
            with queue.reserve() as item:  # confirmed at the end of the block, put back by an exception
                send(item.data)
        except ValueError as error:
            print(item.data.decode(), "failed:", error)

with Queue("queues", "mail_parked") as parked:
    print("parked:", list(parked))
