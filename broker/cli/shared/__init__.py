"""Options, output formats, connections and error reporting that several commands share."""
