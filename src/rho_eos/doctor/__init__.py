"""What `rho-eos info --check` tries on a machine: kernels, numbers, tokens, speed."""
