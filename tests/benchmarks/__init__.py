"""Speed as ratios and profiles, measured in one run. Nothing here asserts a time."""
