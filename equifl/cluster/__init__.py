"""The same selection, and the same sweeps, on a Ray cluster."""

from equifl.extras import needed_by

with needed_by("equifl.cluster"):
    from equifl.cluster.selector import ClusterSelector

__all__ = ["ClusterSelector"]
