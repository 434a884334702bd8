"""An experiment on paper: its configuration, its folder, its tables."""
