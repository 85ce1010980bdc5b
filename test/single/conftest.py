"""Each folder tests one concept, as in the package; support/ has code that several folders share."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))
