"""Plain chains of layers on a CPU, by loops that numba compiles."""
