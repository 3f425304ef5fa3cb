"""Every process of the tests uses one core unless a test asks for more.

Threads that wait for each other in a loop take the core another worker's test needs, and everything
takes ten times as long. Set here because torch reads it when it is imported first.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
