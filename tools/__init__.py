"""Writes pages and figures from committed results; not part of the package."""
