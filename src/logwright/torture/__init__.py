"""torture: kills writers on the user's own disk, and checks that everything acknowledged is there.

    exercises.py    the writers: what each one does in its process, and what must be there afterwards
    journals.py     messages of sej and records of appendfile, which are numbered and appended
    queue.py        a queue that is used by `put`, `get`, `reserve`, `confirm` and `abort`
    store.py        a store whose changes are numbered
    database.py     a database whose transactions are numbered
    child.py        the process that is killed; it reports each acknowledgement through a pipe
    moments.py      a disk that kills its process before or after one of its calls
    power.py        a file system on a loop device that loses its power
    run.py          starts, kills and checks, again and again

The tests of this project use the same parts.
"""
