"""The tests of sej."""
