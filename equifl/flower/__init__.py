"""Fair cohorts on a Flower federation: wrap the strategy that is there, and leave the clients as they are."""

from equifl.extras import needed_by

with needed_by("equifl.flower"):
    from equifl.flower.probe import probe
    from equifl.flower.selection import FairSelection

__all__ = ["FairSelection", "probe"]
