"""The tests of Logwright; they mirror the tree of `src/logwright`."""
