"""The contenders of `benchmarks/simulation.py`, each as its own makers would run it."""
