"""Every day: new images sorted by a run as they come, from a folder or over the network."""
