"""The scripts are not part of the package: put their folder on the import path, as running one does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
