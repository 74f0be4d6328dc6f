"""Real models of many families, exported on the spot, for checking what irscope says about them."""
