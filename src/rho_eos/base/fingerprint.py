"""Fingerprints of files that results depend on: weights, adapters and data."""

from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

from rho_eos.base.errors import UserError

PIECES, PIECE_BYTES = 256, 4096


def fingerprint(files: Iterable[Path]) -> str:
    """A hash of sizes and evenly spread pieces: other weights differ everywhere, not in one bit.

    Small files are read whole, and tens of gigabytes take no longer than a megabyte.
    """
    digest = blake2b(digest_size=16)
    for file in files:
        try:
            size = file.stat().st_size
            digest.update(f"{file.name} {size}\n".encode())
            with file.open("rb") as content:
                if size <= PIECES * PIECE_BYTES:
                    digest.update(content.read())
                    continue
                for piece in range(PIECES):
                    content.seek((size - PIECE_BYTES) * piece // (PIECES - 1))
                    digest.update(content.read(PIECE_BYTES))
        except OSError as error:
            raise UserError(f"cannot read {file}: {error.strerror or error}") from error
    return digest.hexdigest()
