"""A transfer between two pages of a database: both happen, or none."""

from logwright.yeltsin import Database, Reader

with Database("bank.ydb", "bank.jrnl") as database:  # sync="always" is the default here
    with database.transaction() as opening:
        ada, chen = opening.allocate(), opening.allocate()
        opening.modify(ada, 0, b"0100")
        opening.modify(chen, 0, b"0000")
    try:
        with database.transaction() as transfer:
            transfer.modify(ada, 0, b"0070")
            raise ValueError("the line is cut")  # nothing of this transaction happens
    except ValueError as error:
        print(error)
    with database.transaction() as transfer:
        transfer.modify(ada, 0, b"0070")
        transfer.modify(chen, 0, b"0030")

with Reader("bank.jrnl") as reader:
    for transaction in reader:
        print(transaction.outcome, len(transaction.operations), "operations")
