"""`python -m broker` and the `ottla` program: nothing but the way into the command line."""

from broker.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
