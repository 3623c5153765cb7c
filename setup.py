"""Builds the Cython kernels, and lets the installation continue without them if there is no C compiler.

Everything else about the package is in pyproject.toml. The kernels are the files `_*.pyx`, and every `.py` source that
imports cython. Such a source is compiled under its own name with an underscore, with the C types of the `.pxd` of that
name. A codec, or the source itself, does the same work in Python, and the tests check that both agree. Either all
kernels are built or none.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = Path(__file__).parent / "src"
OPTIONS = os.environ.get("LOGWRIGHT_CFLAGS", "-O3 -g0").split()  # others are for tools/sanitize.sh
IMPORTS_CYTHON = re.compile(r"^ *import cython$", re.MULTILINE)


class AllOrNone(build_ext):
    """Compiles all kernels, or explains the consequences of a failure."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            for output in self.get_outputs():
                Path(output).unlink(missing_ok=True)
            print(
                f"\nlogwright: the kernels were not built ({error}).\n"
                "logwright: the package works without them, but reads and writes about ten times slower.\n"
                "logwright: install a C compiler and the Python headers, then install logwright again.\n",
                file=sys.stderr,
            )


def sources() -> Iterator[tuple[Path, str]]:
    """The sources of the kernels, and the names of their modules."""
    for path in sorted(SOURCE.rglob("_*.pyx")):
        yield path, path.stem
    declared = max(path.stat().st_mtime for path in SOURCE.rglob("*.pxd"))
    for path in sorted(SOURCE.rglob("*.py")):
        if IMPORTS_CYTHON.search(path.read_text(encoding="utf-8")):
            generated = path.with_suffix(".c")
            if generated.exists() and generated.stat().st_mtime < declared:
                generated.unlink()  # Cython looks for a .pxd of the source's name only, and would not notice
            yield path, f"_{path.stem}"


def kernels() -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        print("logwright: Cython is missing, so the kernels are not built.", file=sys.stderr)
        return []
    linking = [option for option in OPTIONS if option.startswith("-fsanitize")]
    extensions = [
        Extension(
            ".".join((*path.relative_to(SOURCE).parts[:-1], name)),
            [str(path.relative_to(SOURCE.parent))],
            extra_compile_args=OPTIONS,
            extra_link_args=linking,
        )
        for path, name in sources()
    ]
    built: list[Extension] = cythonize(extensions, compiler_directives={"language_level": "3"})
    return built


setup(ext_modules=kernels(), cmdclass={"build_ext": AllOrNone})
