"""`python -m horovod.runner` is the same as `horovodrun`."""

import sys

from horovod.runner.launch import main

sys.exit(main())
