"""A journal of messages, and a consumer that remembers how far it has come."""

from logwright import sej


def handle(message: sej.Message) -> None:
    print("handled", message.offset, message.value)


with sej.Writer("orders", sync="always") as writer:
    writer.append(b"a pear", key=b"ada")
    writer.append(b"two plums", key=b"chen")

with sej.Consumer("orders", "billing", handle, timeout=0) as consumer:  # timeout=None would wait for more
    consumer.run()

with sej.Writer("orders", sync="always") as writer:
    writer.append(b"a fig", key=b"ada")

with sej.Consumer("orders", "billing", handle, timeout=0) as consumer:  # continues after the last commit
    consumer.run()
