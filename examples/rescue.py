"""A damaged journal: what is wrong, what can be read, and what a repair loses."""

import subprocess
from pathlib import Path

from logwright import sej

with sej.Writer("orders") as writer:
    for number in range(100):
        writer.append(b"order %d" % number)

with sej.Reader("orders") as reader:
    hit = next(reader.scan(50, 51))  # with its place in the files
with Path("orders", hit.file).open("r+b") as segment:  # a failing disk changes the size of a message
    segment.seek(hit.span.end - 2)
    segment.write(b"\xff\xff")

with sej.Reader("orders") as reader:
    print(sum(1 for _ in reader.scan(mode="dropmalformed")), "of 100 messages can be read")

print(subprocess.run(["logwright", "repair", "orders", "--yes"], capture_output=True, text=True).stdout.split("\n")[0])
print(subprocess.run(["logwright", "verify", "orders"], capture_output=True, text=True).stdout)
