"""The formats: each is registered by its name, and imported when it is first used."""

from __future__ import annotations

from .core.format import FORMATS, Format

__all__ = ["FORMATS"]


def _sej() -> Format:
    from .sej.format import SejFormat

    return SejFormat()


def _kestrel() -> Format:
    from .kestrel.format import KestrelFormat

    return KestrelFormat()


def _versioned() -> Format:
    from .versioned.format import VersionedFormat

    return VersionedFormat()


def _appendfile() -> Format:
    from .appendfile.format import AppendfileFormat

    return AppendfileFormat()


def _yeltsin() -> Format:
    from .yeltsin.format import YeltsinFormat

    return YeltsinFormat()


FORMATS.register("sej", _sej)
FORMATS.register("kestrel", _kestrel)
FORMATS.register("versioned", _versioned)
FORMATS.register("appendfile", _appendfile)
FORMATS.register("yeltsin", _yeltsin)
