"""Look through the groups of a run in a browser, name and correct them."""
