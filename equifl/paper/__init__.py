"""The paper's evaluation run again: its tables, its figures beside ours, and what holds of its claims."""
