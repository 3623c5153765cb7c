#!/usr/bin/env bash
# Prints the newest Python on the PATH that is known to work with the pins, or any that is at least 3.11. Prints nothing
# if there is none. Each candidate is run, because a name on the PATH may be a shim without a target.

for name in python3.13 python3.12 python3.11 python3 python; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        echo "$name"
        exit 0
    fi
done
