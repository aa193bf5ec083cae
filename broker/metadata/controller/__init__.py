"""The active controller's decisions: each command returns records and a response; pure."""
