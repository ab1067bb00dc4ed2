"""``python -m ordstream``, and the console script: the command line. Ctrl-C is heard before anything
else is imported.
"""

import sys

from ordstream.commands import ctrl_c


def main() -> int:
    """Run the command that the process was started with; returns its exit status
    (`ordstream.commands.cli.main`).
    """
    ctrl_c.listen()
    from ordstream.commands.cli import main as command

    return ctrl_c.run(command)


if __name__ == "__main__":
    sys.exit(main())
