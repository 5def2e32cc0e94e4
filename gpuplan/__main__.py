"""`python -m gpuplan` is `gpuplan`."""

from gpuplan.planner.cli import run

if __name__ == "__main__":
    run()
