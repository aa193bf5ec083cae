"""The documentation: the site builds, generated pages are current, and command blocks do what they show."""
