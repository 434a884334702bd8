"""One attack a file: `make(rng)` plans a case as a list of plain steps, `play(steps, folder)` carries it out.

A step is a value that JSON can hold, so that a case can be kept, and a failing one be cut down step by step.
`play` returns what it counted (for example `Counter(replies=20, refused=7)`) and raises when something broke: an
error of the wrong kind, a silent loss, a different result. `QUICK` says how many cases `make test` tries, `SECONDS`
about how long one takes, `NEEDS` which package it cannot do without. The first line of the docstring says what is
attacked.
"""
