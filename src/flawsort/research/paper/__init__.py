"""The paper: its protocol, its clusterers and distances, and the numbers it published."""
