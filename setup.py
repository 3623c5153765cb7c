"""Builds the Cython kernels, and lets the install go on without them when there is no C compiler.

Everything else about the package is in pyproject.toml. Each kernel is optional: `codec.py` beside it does the same
work in Python, and the tests hold the two equal.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = Path(__file__).parent / "src"
OPTIONS = os.environ.get("LOGWRIGHT_CFLAGS", "-O3").split()  # others are for tools/sanitize.sh


class OptionalBuildExt(build_ext):
    """Compiles each kernel, or says what it means that it could not."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:
            print(
                f"\nlogwright: the kernel {ext.name} was not built ({error}).\n"
                "logwright: the package works without it, but reads and writes about ten times slower.\n"
                "logwright: install a C compiler and the Python headers, then install logwright again.\n",
                file=sys.stderr,
            )


def kernels() -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        print("logwright: Cython is missing, so the kernels are not built.", file=sys.stderr)
        return []
    extensions = []
    for path in sorted(SOURCE.rglob("_*.pyx")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        sources = [str(path.relative_to(SOURCE.parent))]
        linking = [option for option in OPTIONS if option.startswith("-fsanitize")]
        extensions.append(Extension(name, sources, extra_compile_args=OPTIONS, extra_link_args=linking))
    built: list[Extension] = cythonize(extensions, compiler_directives={"language_level": "3"})
    for extension in built:
        extension.optional = True  # cythonize makes new ones, which have forgotten it
    return built


setup(ext_modules=kernels(), cmdclass={"build_ext": OptionalBuildExt})
