"""How the embedded models were trained. Not part of the installed package."""
