"""A Flower app of the older API."""
