"""The `equifl` command, which is also `python -m equifl`."""

import sys

from equifl import __version__
from equifl.extras import MissingExtraError


def main() -> None:
    """Run the command line; where a package that it needs is missing, say so in one line and exit with 2.

    The version can be had with numpy alone.
    """
    if sys.argv[1:] == ["--version"]:
        print(f"equifl, version {__version__}")
        return
    try:
        from equifl.cli.main import main as command_line
    except MissingExtraError as error:
        print(f"equifl: {error}", file=sys.stderr)
        sys.exit(2)
    command_line(prog_name="equifl")


if __name__ == "__main__":
    main()
