"""The tests of each format, one package for each, beside the contract tests that all of them go through."""
