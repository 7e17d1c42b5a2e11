"""``python -m mgb``."""

import sys

from .tools.cli import main

sys.exit(main())
