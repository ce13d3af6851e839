"""The command ``cpumax``."""

import sys


def command() -> None:
    """Runs the command with the words of this process, and ends with its exit status."""
    from ._cpumax import main

    sys.exit(main(["cpumax", *sys.argv[1:]]))


if __name__ == "__main__":
    command()
