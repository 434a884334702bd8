from tests.flower.pretend import inside_a_run

__all__ = ["inside_a_run"]
