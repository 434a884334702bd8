"""Handwritten digits on a Flower federation whose cohorts equifl chooses."""
