"""`python -m equifl` is `equifl`."""

from equifl.cli import main

main(prog_name="equifl")
