"""What is compiled is kept for the next process, and compiled again when any file of the package changes."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the compiled engine needs numba: pip install 'equifl[fast]'")

from equifl.sim.engines.compiled import client_work, compile_cache

PACKAGE = Path(compile_cache.__file__).parent
FILES = sorted(path.name for path in PACKAGE.glob("*.py"))


def test_the_entry_point_is_kept_under_a_name_with_the_digest() -> None:
    assert client_work.work.py_func.__qualname__ == f"work_{compile_cache.source_digest()}"


@pytest.mark.parametrize("name", FILES)
def test_a_change_of_any_file_changes_the_digest(name: str, tmp_path: Path) -> None:
    """Numba itself looks only at the file that a function is in."""
    for file in FILES:
        shutil.copy(PACKAGE / file, tmp_path / file)
    assert compile_cache.source_digest(tmp_path) == compile_cache.source_digest()
    (tmp_path / name).write_text((PACKAGE / name).read_text() + "# changed\n")
    assert compile_cache.source_digest(tmp_path) != compile_cache.source_digest()
