"""An edge of its own: rho-eos under lm-evaluation-harness."""
