"""`python -m broker` and the `ottla` program: the entry point of the command line."""

from broker.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
