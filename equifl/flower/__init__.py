"""Fair client selection for Flower: wrap your strategy; the clients stay unchanged."""

from equifl.extras import needed_by

with needed_by("equifl.flower"):
    from equifl.flower.probe import probe
    from equifl.flower.selection import FairSelection

__all__ = ["FairSelection", "probe"]
