"""One contender on one course: `python -m race MODULE COURSE`; what it did, as JSON in the last line of its output."""

import contextlib
import importlib
import json
import sys
from importlib.metadata import PackageNotFoundError, version

from race.course import Course

PACKAGES = ("numpy", "torch", "numba", "flwr", "ray", "pfl", "fedlab", "fedjax", "jax", "jaxlib", "dm-haiku")

if __name__ == "__main__":
    course = Course(**json.loads(sys.argv[2]))
    found = importlib.import_module(f"race.{sys.argv[1]}").run(course)
    found["versions"] = {}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found["versions"][package] = version(package)
    print("\n" + json.dumps(found), flush=True)
