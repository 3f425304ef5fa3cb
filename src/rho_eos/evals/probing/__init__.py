"""What a model says of its lengths, measured on the model that somebody owns (`rho-eos probe`)."""
