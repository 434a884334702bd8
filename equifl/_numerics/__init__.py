"""Private numerics: checks of arguments, threads, centring and distances. Not for import from outside the package."""
