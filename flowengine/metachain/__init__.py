"""The old name of `flowengine.runner`."""

from __future__ import annotations

import sys
import warnings

from flowengine import runner

warnings.warn(
    "flowengine.metachain is now flowengine.runner: import from there, or from flowengine",
    DeprecationWarning,
    stacklevel=2,
)
sys.modules[__name__] = runner
