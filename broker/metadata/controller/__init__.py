"""The decisions of the active controller: each command returns records and a response; pure."""
