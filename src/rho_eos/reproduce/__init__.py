"""The paper's tables and figures, on any model: which runs they need, and what is made of them."""
