"""``python -m skald_core`` is ``skald``."""

import sys

from skald_core.cli.main import main

sys.exit(main())
