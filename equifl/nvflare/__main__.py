"""`python -m equifl.nvflare allow KIT`: let a server load the classes of equifl.nvflare."""

from __future__ import annotations

import sys
from pathlib import Path

from equifl.nvflare.allow_list import OURS, allow

USAGE = "usage: python -m equifl.nvflare allow KIT, the server's folder with `startup` and `local` in it"


def main(arguments: list[str]) -> None:
    """Extend the class allow list of the startup kit that the command names."""
    match arguments:
        case ["allow", kit] if (Path(kit) / "startup").is_dir():
            try:
                print(f"{allow(kit)}: allows {OURS}*; restart the server")
            except (ValueError, OSError) as error:
                sys.exit(str(error))
        case ["allow", kit]:
            sys.exit(f"{kit}: is no startup kit of NVFlare; {USAGE}")
        case _:
            sys.exit(USAGE)


if __name__ == "__main__":
    main(sys.argv[1:])
