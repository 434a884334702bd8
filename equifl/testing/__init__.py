"""Tests that every selector and every server rule must pass, including your own: inherit them."""

from equifl.testing.aggregator_contract import AggregatorContract, random_replies
from equifl.testing.selector_contract import SelectorContract, random_signals, reorder

__all__ = ["AggregatorContract", "SelectorContract", "random_replies", "random_signals", "reorder"]
