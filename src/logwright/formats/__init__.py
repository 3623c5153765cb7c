"""One package per format, all with the same rooms."""
