"""Fair client selection for NVFlare: a FedAvg controller and a recipe; the clients stay unchanged."""

from equifl.extras import needed_by

with needed_by("equifl.nvflare"):
    from equifl.nvflare.controller import FairFedAvg
    from equifl.nvflare.recipe import FairFedAvgRecipe

__all__ = ["FairFedAvg", "FairFedAvgRecipe"]
