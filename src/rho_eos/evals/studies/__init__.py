"""Studies: many runs in one folder, shown as tables and pictures. A survey is one of them."""
