"""Our commit rules, one file each. A file that is put here is found; nothing else names it."""
