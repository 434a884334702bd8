"""The documentation site: pages made from the code beside those in docs/, built by Sphinx; `make docs`."""
