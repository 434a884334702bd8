"""An experiment as data: its configuration, run folder, results and tables."""
