"""Private numerics: checks of arguments, threads, centring and distances. Nobody imports them from outside."""
