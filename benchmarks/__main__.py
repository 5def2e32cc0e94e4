"""`make bench` prints the tables of docs/benchmarks.md."""

from benchmarks.plans import main

if __name__ == "__main__":
    main()
