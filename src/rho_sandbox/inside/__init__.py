"""What runs inside the sandbox: standard library only, and nothing of the rest of the package.

This folder is all that a sandbox sees of us. `start.py` is the script that runs there. It imports
its neighbours as the package `inside`, so they import each other relatively.
"""
