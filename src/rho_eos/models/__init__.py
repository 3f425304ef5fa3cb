"""Native masked diffusion models; `rho_eos.models.auto` makes them known to transformers."""
