"""Models by name, whether a module can be trained, and which layers it is."""
