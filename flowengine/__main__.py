"""`python -m flowengine`: the command line."""

import sys

from flowengine.cli import main

sys.exit(main())
