"""The command line: one file per command, with the options and output formats of Kafka's tools.

`main` finds and runs commands and turns failures into a message and an exit code. A command's module is imported only
when it runs, so that `ottla start` loads neither the client nor tables. Nodes import nothing from here.
"""
