"""Attacks on equifl: hostile input, damaged files, killed processes. `make torture MINUTES=10` runs them."""
