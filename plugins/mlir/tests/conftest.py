"""Lets the tests here share `mlir_helpers`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
