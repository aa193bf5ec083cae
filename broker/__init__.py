"""The broker: pure cores, the drivers that run them, and the APIs in front of them."""
