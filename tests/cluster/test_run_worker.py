import subprocess
import sys


def test_a_worker_has_started_before_it_imports_pytorch() -> None:
    """Else it would seem to wait for a CPU that it has."""
    code = "import sys, equifl.cluster.run_worker; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
