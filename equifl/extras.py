"""Packages that come with an extra: where one is missing, the error says which extra to install."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

# The extra that brings a package, by the name it is imported by; pyproject.toml says the same.
EXTRAS: Mapping[str, str] = {
    "torch": "sim",
    "sklearn": "sim",
    "scipy": "sim",
    "click": "sim",
    "rich": "sim",
    "filelock": "sim",  # and flower, nvflare
    "numba": "fast",
    "plotly": "report",
    "jinja2": "report",
    "tomli_w": "report",
    "pandas": "report",
    "markupsafe": "report",  # which jinja2 brings
    "flwr": "flower",
    "nvflare": "nvflare",
    "ray": "cluster",
}


class MissingExtraError(ModuleNotFoundError):
    """A package is not installed that one of the extras brings."""


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Turn a missing package of an extra into a `MissingExtraError`; every other error passes as it is.

    Args:
        what: the part of equifl that imports within this context.

    >>> with needed_by("equifl.flower"):
    ...     raise ModuleNotFoundError("No module named 'flwr'", name="flwr")
    Traceback (most recent call last):
    equifl.extras.MissingExtraError: equifl.flower needs flwr, which is not installed; pip install 'equifl[flower]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name)
        if isinstance(error, MissingExtraError) or package not in EXTRAS:
            raise
        advice = f"pip install 'equifl[{EXTRAS[package]}]'"
        message = f"{what} needs {package}, which is not installed; {advice}"
        raise MissingExtraError(message, name=package) from None
