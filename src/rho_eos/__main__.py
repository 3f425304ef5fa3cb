"""`python -m rho_eos` is the `rho-eos` command."""

from rho_eos.cli import main

main()
