"""The command line: one file per command, with Kafka's flags and, as far as scripts read it, Kafka's output.

`main` finds and runs commands and turns failures into one sentence and an exit code. A command's module is imported
only when it is called, so that `ottla start` carries neither the client nor tables. Not here: anything a node needs
in order to run.
"""
