"""The long form is a program of several files; its tests import them as it does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
