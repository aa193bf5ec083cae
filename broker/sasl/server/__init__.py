"""Server side of SASL mechanisms."""
