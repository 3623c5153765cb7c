"""Events in four journals: a key always goes to the same one, and each may have a consumer of its own."""

from logwright import sej

with sej.ShardedWriter("events", "web", 2) as writer:  # 2 bits: four shards
    for number in range(1000):
        writer.append(b"click %d" % number, key=b"visitor %d" % (number % 50))

with sej.ShardedReader("events") as reader:
    messages = list(reader)
print(len(messages), "events of", len({message.key for message in messages}), "visitors")
