"""`python -m gpuplan` is `gpuplan`."""

from gpuplan.planner.cli import main

if __name__ == "__main__":
    main()
