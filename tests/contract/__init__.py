"""The promises of every format, tested in the same way: a `Subject` describes a format, and the tests use it."""
