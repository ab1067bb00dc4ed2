"""``python -m ordstream``: the command line."""

import sys

from ordstream.cli import main

sys.exit(main())
