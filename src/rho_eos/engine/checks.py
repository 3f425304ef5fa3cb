"""What a policy and a commit rule may do to a canvas: as much as they have declared."""

from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.decoding.commit import CommitRule
from rho_eos.decoding.edits import Edit, EditError
from rho_eos.decoding.policy import Keeps, Policy


def check_edits(canvas: Canvas, edits: tuple[Edit, ...], policy: Policy, longest: int) -> None:
    """Given text stays, and committed tokens as far as the policy has promised that."""
    for edit in edits:
        if not isinstance(edit, policy.edits):
            raise EditError(f"policy {policy.name} declares no {type(edit).__name__}")
    changed, keeps = canvas.edit(edits, longest).changed, policy.keeps
    if canvas.given[changed].any():
        raise EditError(f"policy {policy.name} may not change text that was given")
    committed = changed[canvas.cells[changed] != canvas.special.mask]
    if keeps is Keeps.NOTHING or not len(committed):
        return
    if keeps is Keeps.ALL or committed[0] < canvas.masked.min(initial=canvas.length):
        raise EditError(f"policy {policy.name} may not change a committed token")


def check_rewritten(canvas: Canvas, again: Positions, rule: CommitRule, open_block: int) -> None:
    """Tokens go where MASKs are. A rule writes again, or takes back, only what it wrote in the open
    block, if it says that it does."""
    if not len(again):
        return
    if rule.keeps is not Keeps.BLOCKS or canvas.given[again].any():
        raise EditError(f"commit rule {rule.name} may not change these tokens")
    if again.min() < open_block:
        raise EditError(f"commit rule {rule.name} may not reopen a finished block")
