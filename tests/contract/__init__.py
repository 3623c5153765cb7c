"""What every format promises, tested the same way for each: a `Subject` describes a format, the tests do the rest."""
