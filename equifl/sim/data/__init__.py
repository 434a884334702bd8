"""Data sets, where their files come from, and how they are divided among clients."""
