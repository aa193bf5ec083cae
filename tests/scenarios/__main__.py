"""`python -m tests.scenarios [KIND ...] [--rewrite]`: list transcripts with outdated output, or rewrite them."""

import argparse
import sys

from tests.scenarios.kinds import KINDS, all_transcripts, transcript_name
from tests.scenarios.transcript import replay


def main() -> int:
    """Return 1 if a transcript differs from its present output and is not rewritten."""
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"limit to these kinds: {', '.join(KINDS)}")
    parser.add_argument("--rewrite", action="store_true", help="write the present output into the transcripts")
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"unknown kind {', '.join(sorted(unknown))}; known: {', '.join(KINDS)}")
    differing = 0
    for kind, path in all_transcripts():
        if options.kinds and kind not in options.kinds:
            continue
        text = path.read_text()
        present = replay(text, KINDS[kind]())
        if present == text:
            continue
        differing += 1
        if options.rewrite:
            path.write_text(present)
        print(f"{transcript_name(path)} {'rewritten' if options.rewrite else 'differs'}")
    return 0 if options.rewrite else min(differing, 1)


if __name__ == "__main__":
    sys.exit(main())
