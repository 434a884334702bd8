"""What trains many models at once: the choice between engines, the engines, and their slow, obvious reference."""
